"""Settings of the sources: landing zone, Kafka, its topics and registry, and the collector."""

from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from lakeproof.addresses import as_uri, folder_or_address, web_address
from lakeproof.errors import UsageError
from lakeproof.settings.checks import (
    Folder,
    HeaderSecret,
    broker_list,
    checked,
    files_text,
    offsets_text,
    origin_list,
    refusal,
)
from lakeproof.settings.group import InHome, SettingsGroup, in_home, with_prefix
from lakeproof.topics import topic_name


class LandingSettings(InHome, title="Landing zone"):
    """Where batches land, and how they are discovered and read."""

    uri: Annotated[str, checked(lambda text: as_uri(folder_or_address(text)))] = Field(
        default_factory=in_home("landing"),
        alias="LAKE_LANDING",
        description="landing zone, with a folder for each stream",
    )
    source: str | None = None
    """Address of the files of a stream, from `consumer run --source`; no variable sets it."""
    starting_files: Annotated[str, checked(files_text)] = Field(
        "earliest",
        alias="LAKE_STARTING_FILES",
        description="where the first run of a stream of files begins: earliest, latest, or a time "
        "(2026-11-22T06:00:00Z); files that were last modified earlier are not read",
    )
    notification_topic: Annotated[str, checked(topic_name)] | None = Field(
        None,
        alias="LAKE_NOTIFICATION_TOPIC",
        description="Kafka topic with bucket events that name new files; none: new files are found by listing",
    )
    settle_seconds: float = Field(
        1.0, ge=0, alias="LAKE_SETTLE_SECONDS", description="how long a local file is left alone before it is read"
    )
    sweep_seconds: float = Field(
        300.0, gt=0, alias="LAKE_SWEEP_SECONDS", description="time between two listings of the whole landing zone"
    )
    max_files_per_micro_batch: int = Field(
        10_000, ge=1, alias="LAKE_MAX_FILES_PER_MICRO_BATCH", description="maximum number of files in one micro-batch"
    )
    max_bytes_per_micro_batch: int | None = Field(
        None,
        ge=1,
        alias="LAKE_MAX_BYTES_PER_MICRO_BATCH",
        description="maximum bytes of files in one micro-batch, which has at least one file; none: 1 GiB, or "
        "32 MiB per core on more than 32 cores",
    )


class KafkaSettings(SettingsGroup, title="Kafka", alias_generator=with_prefix("LAKE_KAFKA_")):
    """How to reach Kafka, and what is read from it."""

    secrets = ("sasl_password", "ssl_key_password")

    bootstrap_servers: Annotated[str, checked(broker_list)] = Field(
        "localhost:9092", description="addresses of Kafka brokers: HOST:PORT, separated by commas"
    )
    topic: str | None = Field(
        None,
        description="topic of a stream; none: the name of the stream, or LAKE_COLLECTOR_TOPIC for the clickstream",
    )
    starting_offsets: Annotated[str, checked(offsets_text)] = Field(
        "earliest",
        description="where the first run of a stream begins: earliest, latest, a time (2026-11-22T06:00:00Z), or "
        'offsets by partition ({"0": 42}). Later runs resume from the tables',
    )
    max_offsets_per_micro_batch: int = Field(
        500_000, ge=1, description="maximum number of offsets in one micro-batch, of all partitions"
    )
    timeout_seconds: float = Field(
        120.0, gt=0, description="how long a running consumer waits for unresponsive brokers"
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "PLAIN", description="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
    )
    sasl_username: str | None = Field(None, description="user for SASL")
    sasl_password: SecretStr | None = Field(None, description="password for SASL")
    ssl_ca: Folder | None = Field(None, description="PEM file of the authorities that sign the brokers' certificates")
    ssl_certificate: Folder | None = Field(None, description="PEM file of the client's certificate")
    ssl_key: Folder | None = Field(None, description="PEM file of the certificate's private key, in PKCS #8")
    ssl_key_password: SecretStr | None = Field(None, description="password of the private key")

    @field_validator("sasl_username", "sasl_password")
    @classmethod
    def _is_of_sasl(cls, value: Any, info: ValidationInfo) -> Any:
        protocol = info.data.get("security_protocol")  # None if it was refused
        with refusal():
            if value is None and protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
                raise UsageError(
                    f"it is not set, but LAKE_KAFKA_SECURITY_PROTOCOL is {protocol}.", "Set it, or another protocol."
                )
            if value is not None and protocol in ("PLAINTEXT", "SSL"):
                raise UsageError(
                    f"it is for SASL, but LAKE_KAFKA_SECURITY_PROTOCOL is {protocol}.",
                    "Set that to SASL_SSL or SASL_PLAINTEXT, or leave it unset.",
                )
        return value

    @field_validator("ssl_ca", "ssl_certificate")
    @classmethod
    def _is_of_tls(cls, value: Any, info: ValidationInfo) -> Any:
        protocol = info.data.get("security_protocol")
        with refusal():
            if value is not None and protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
                raise UsageError(
                    f"it is for TLS, but LAKE_KAFKA_SECURITY_PROTOCOL is {protocol}.",
                    "Set that to SSL or SASL_SSL, or leave it unset.",
                )
        return value

    @field_validator("ssl_key")
    @classmethod
    def _is_of_the_certificate(cls, key: Any, info: ValidationInfo) -> Any:
        return cls.set_with("ssl_certificate", key, info, both=True)

    @field_validator("ssl_key_password")
    @classmethod
    def _is_of_the_key(cls, password: Any, info: ValidationInfo) -> Any:
        return cls.set_with("ssl_key", password, info)


class TopicSettings(SettingsGroup, title="Kafka topics", alias_generator=with_prefix("LAKE_TOPIC_")):
    """Configuration of new topics. Existing topics are never changed."""

    partitions: int = Field(6, ge=1, description="partitions of a new topic")
    replication: int | None = Field(None, ge=1, description="replicas of a new topic; none: the broker's default")
    min_insync_replicas: int | None = Field(
        None,
        ge=1,
        description="replicas that must have a message before it is acknowledged; none: the broker's default",
    )
    retention_hours: float = Field(168.0, gt=0, description="how long a new topic keeps its messages")
    cleanup: Literal["delete", "compact", "compact,delete"] = Field(
        "delete", description="cleanup of old messages in a new topic; compact keeps the newest message of each key"
    )


class RegistrySettings(SettingsGroup, title="Schema registry", alias_generator=with_prefix("LAKE_SCHEMA_REGISTRY_")):
    """How to reach a schema registry with Confluent's API."""

    secrets = ("password",)

    url: Annotated[str, checked(web_address)] | None = Field(
        None, description="address of a schema registry with Confluent's API; none: contracts are not registered"
    )
    username: str | None = Field(None, description="user of the registry")
    password: SecretStr | None = Field(None, description="password of the registry's user")

    @field_validator("username")
    @classmethod
    def _is_of_a_registry(cls, username: Any, info: ValidationInfo) -> Any:
        return cls.set_with("url", username, info)

    @field_validator("password")
    @classmethod
    def _is_of_a_user(cls, password: Any, info: ValidationInfo) -> Any:
        return cls.set_with("username", password, info)


class CollectorSettings(SettingsGroup, title="Collector", alias_generator=with_prefix("LAKE_COLLECTOR_")):
    """Limits and addresses of the collector."""

    secrets = ("producer_key",)

    host: str = Field("127.0.0.1", description="address that the collector listens on")
    port: int = Field(8080, ge=0, le=65535, description="port that the collector listens on; 0: any")
    topic: Annotated[str, checked(topic_name)] = Field(
        "acme.clickstream.raw.events", description="Kafka topic of the events"
    )
    probe_topic: Annotated[str, checked(topic_name)] = Field(
        "acme.clickstream.raw.probes", description="Kafka topic of the probes, which show that the brokers acknowledge"
    )

    @field_validator("probe_topic")
    @classmethod
    def _is_another(cls, probe_topic: str, info: ValidationInfo) -> str:
        with refusal():
            if probe_topic == info.data.get("topic"):
                raise UsageError(
                    "expected another topic than LAKE_COLLECTOR_TOPIC: probes are not events.",
                    "Use a topic for probes alone.",
                )
            return probe_topic

    deadline_seconds: float = Field(
        10.0, ge=1, le=300, description="how long the collector tries to deliver an event to Kafka"
    )
    ready_seconds: float = Field(
        5.0, ge=2, description="how long Kafka may acknowledge nothing before the collector rejects posts"
    )
    body_seconds: float = Field(
        10.0,
        gt=0,
        description="time for a client to send a head, a body or its rest after an early answer, or to read an answer",
    )
    max_body_bytes: int = Field(1024**2, ge=2, le=64 * 1024**2, description="maximum bytes of a body as sent")
    max_unpacked_bytes: int = Field(4 * 1024**2, ge=2, le=64 * 1024**2, description="maximum bytes of a body, unpacked")
    max_events: int = Field(1000, ge=1, description="maximum number of events in a post")
    max_event_bytes: int = Field(
        512 * 1024, ge=32, le=900_000, description="maximum bytes of an event; Kafka must accept messages of this size"
    )
    max_queue_bytes: int = Field(128 * 1024**2, ge=1024**2, description="memory for all unanswered posts")
    max_connections: int = Field(12_000, ge=1, description="maximum number of simultaneous connections")
    keys: Folder | None = Field(None, description="file of API keys; none: no key is required")
    producer_key: HeaderSecret | None = Field(
        None, alias="LAKE_PRODUCER_KEY", description="API key with which the producer posts to a collector"
    )
    events_per_second: float | None = Field(
        None, gt=0, description="maximum number of events per second from each client, with API keys; none: no limit"
    )
    origins: Annotated[str, checked(origin_list)] | None = Field(
        None, description="origins of pages that may post, separated by commas (https://shop.example), or *"
    )
