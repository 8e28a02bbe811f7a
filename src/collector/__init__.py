"""Accepts events over HTTP and answers when Kafka has them."""
