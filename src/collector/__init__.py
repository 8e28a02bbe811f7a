"""Accepts events by HTTP, and answers when Kafka has them."""
