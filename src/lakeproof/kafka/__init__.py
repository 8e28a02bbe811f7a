"""What the programs share about Kafka."""
