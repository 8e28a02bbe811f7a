"""Accept events over HTTP, and respond when Kafka has them."""
