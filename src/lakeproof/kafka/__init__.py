"""Kafka clients, topics, offsets, and the schema registry."""
