"""Options of Kafka clients. They contain secrets and are never logged."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeproof.errors import UsageError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from lakeproof.settings import KafkaSettings


def client_properties(kafka: "KafkaSettings") -> dict[str, str | int | float | bool]:
    """Return the properties of a confluent-kafka client."""
    check_files(kafka)
    properties: dict[str, str | int | float | bool] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "log_level": 0,  # errors are reported by the calls
        "reconnect.backoff.max.ms": 1_000,
    }
    if kafka.security_protocol.startswith("SASL"):
        properties["sasl.mechanism"] = kafka.sasl_mechanism
        properties["sasl.username"] = kafka.sasl_username or ""
        properties["sasl.password"] = _secret(kafka.sasl_password)
    for name, path in (
        ("ssl.ca.location", kafka.ssl_ca),
        ("ssl.certificate.location", kafka.ssl_certificate),
        ("ssl.key.location", kafka.ssl_key),
    ):
        if path:
            properties[name] = str(path)
    if kafka.ssl_key_password:
        properties["ssl.key.password"] = _secret(kafka.ssl_key_password)
    return properties


def spark_options(kafka: "KafkaSettings") -> dict[str, str]:
    """Return the options of Spark's Kafka source, which uses the Java client."""
    check_files(kafka)
    options = {"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": kafka.security_protocol}
    if kafka.security_protocol.startswith("SASL"):
        module = "plain.PlainLoginModule" if kafka.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
        user, password = _quoted(kafka.sasl_username or ""), _quoted(_secret(kafka.sasl_password))
        options["sasl.mechanism"] = kafka.sasl_mechanism
        options["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required username={user} password={password};"
        )
    if kafka.ssl_ca:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": kafka.ssl_ca.read_text()}
    if kafka.ssl_certificate and kafka.ssl_key:
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": kafka.ssl_certificate.read_text(),
            "ssl.keystore.key": kafka.ssl_key.read_text(),
        }
    if kafka.ssl_key_password:
        options["ssl.key.password"] = _secret(kafka.ssl_key_password)
    return {f"kafka.{name}": value for name, value in options.items()}


@contextmanager
def accepted_settings() -> Iterator[None]:
    """Report settings that a confluent-kafka client refuses when it is created."""
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, ValueError, TypeError) as error:
        first = error.args[0] if error.args else error
        text = str(first.str() if hasattr(first, "str") else first).rstrip(".")
        raise UsageError(
            f"Kafka's client does not accept the settings: {text}.", "Check the LAKE_KAFKA_… variables."
        ) from error


def is_about_group(error: "KafkaError") -> bool:
    """Return whether an error is about the consumer group: the client asks for it, although no program joins one."""
    from confluent_kafka import KafkaError as Kind

    return error.code() == Kind.GROUP_AUTHORIZATION_FAILED


def check_files(kafka: "KafkaSettings") -> None:
    """Check that certificate and key files exist."""
    for name, path in (
        ("LAKE_KAFKA_SSL_CA", kafka.ssl_ca),
        ("LAKE_KAFKA_SSL_CERTIFICATE", kafka.ssl_certificate),
        ("LAKE_KAFKA_SSL_KEY", kafka.ssl_key),
    ):
        if path and not path.is_file():
            raise UsageError(f"{name}: the file {path} does not exist.", "Set it to a PEM file.")


def _secret(value: object) -> str:
    return str(value.get_secret_value()) if hasattr(value, "get_secret_value") else ""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
