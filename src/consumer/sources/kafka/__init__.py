"""A Kafka topic as a source: Spark fixes offsets in its checkpoint, tasks read the messages."""
