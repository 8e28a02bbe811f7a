"""A Kafka topic as a source: the driver finds the offsets of a micro-batch, and tasks read the messages."""
