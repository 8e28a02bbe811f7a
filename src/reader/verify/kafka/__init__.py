"""Verify a stream that comes from Kafka: read its topic again, and compare it with the tables and the ledger."""
