"""Kafka: positions in a topic, how to reach its brokers, and which topic a stream comes from."""
