"""How to reach Kafka."""

from lakeproof.settings import KafkaSettings


def client_config(settings: KafkaSettings) -> dict[str, str]:
    """Configuration of a Kafka client, by librdkafka's names."""
    return {"bootstrap.servers": settings.bootstrap_servers}
