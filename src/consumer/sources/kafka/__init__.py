"""A Kafka topic as a source: Spark's checkpoint fixes the offsets, and tasks read the messages."""
