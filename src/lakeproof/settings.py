"""Settings from environment variables. The only module that reads the environment.

Variables begin with ``LAKE_``; S3 uses the names of the AWS tools. A ``.env`` file in the working directory has
defaults, the environment wins. Each setting is defined once, by a field: its variable is the alias, its help the
description.
"""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from dotenv import dotenv_values
from platformdirs import user_cache_path
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo

from lakeproof.addresses import as_plain_uri, as_uri, database, folder, folder_or_address, sqlite_uri, without_password
from lakeproof.errors import UsageError, expected
from lakeproof.install.jars import hashes_of_spark
from lakeproof.topics import starting_files, starting_offsets, topic_name

_PREFIX = "LAKE_"
_S3_PREFIX = "AWS_"
_DEFAULTS = ".env"
CLICKSTREAM = "clickstream"  # name of the stream of the collector
_OTHERS = {"LAKE_DEMO"}  # names that are used by scripts only
_HOST = r"([^/\s:,\[\]]+|\[[0-9A-Fa-f:.]+\])"
_MASTER = re.compile(
    r"local(\[([1-9]\d*|\*)(, *[1-9]\d*)?\])?|local-cluster\[\d+, *\d+, *\d+\]"
    rf"|spark://{_HOST}:\d+(,{_HOST}:\d+)*|yarn|k8s://(https?://)?{_HOST}(:\d+)?(/\S*)?"
)
_BROKER = re.compile(rf"\s*([A-Za-z_]+://)?{_HOST}:(?P<port>\d{{1,5}})\s*")
_MEMORY = re.compile(r"(\d+)([mgt])", re.IGNORECASE)
_SHORTCUTS = ("archive", "files", "gateway", "workers")
_LEAST_TOKEN = 16
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/=-]{{{_LEAST_TOKEN},}}")
_ORIGIN = re.compile(r"https?://[^/\s,*?#@]+")
_WEB = re.compile(r"https?://[^/\s?#@]+(/[^\s?#]*)?")
_ADDRESS = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_MEGABYTES = {"m": 1, "g": 1024, "t": 1024**2}
_LEAST_MEGABYTES = 512
_LONGEST_HOURS = 87_600  # ten years


@contextmanager
def _refusal() -> Iterator[None]:
    """Turn a UsageError into a ValueError, the only kind to which pydantic adds the variable."""
    try:
        yield
    except UsageError as error:
        raise ValueError(error.message, error.hint) from None


def _checked(check: Callable[[str], Any]) -> BeforeValidator:
    """Validate the text of a variable with `check`."""

    def validate(value: Any) -> Any:
        if not isinstance(value, str | Path):
            return value
        with _refusal():
            return check(str(value))

    return BeforeValidator(validate)


def _master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a Spark master.", "Write local[*], local[4], spark://HOST:PORT, yarn or k8s://HOST:PORT."
        )
    # Completed as by spark-submit: without a scheme, Spark's Kubernetes client would try both.
    return re.sub(r"^k8s://(?!https?://)", "k8s://https://", text)


def _memory(text: str) -> str:
    found = _MEMORY.fullmatch(text)
    if not found or int(found[1]) * _MEGABYTES[found[2].lower()] < _LEAST_MEGABYTES:
        raise UsageError(
            f"{text!r} is not a size of memory of {_LEAST_MEGABYTES}m or more.",
            "Write a whole number with m or g, like 2g or 1500m.",
        )
    return text


def _folders(text: str) -> str:
    return ",".join(str(folder(part.strip()).absolute()) for part in text.split(",") if part.strip())


def _shortcuts(text: str) -> str:
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in (*_SHORTCUTS, "all"):
            raise UsageError(f"{name!r} is no shortcut.", f"Write some of {', '.join(_SHORTCUTS)}, or all.")
    return ",".join(names)


def _topic_of_streams(text: str) -> str:
    topic_name(text.replace("{stream}", "stream"))
    return text


def _token(text: str) -> SecretStr:
    if not _TOKEN.fullmatch(text):
        raise UsageError(
            f"expected at least {_LEAST_TOKEN} letters, digits or characters of -._~+/=.",
            "Make one: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )
    return SecretStr(text)


def _sent(text: str) -> str:
    """Check a secret that is sent in the headers of requests: clients show a header that they refuse."""
    if not text.isprintable():
        raise UsageError("it contains a control character, such as a line break at its end.", "Remove that.")
    return text


def _origins(text: str) -> str:
    origins = [part.strip().rstrip("/") for part in text.split(",")]
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise UsageError(f"{origin!r} is not an origin.", "Write https://HOST or https://HOST:PORT, or *.")
    return ",".join(origins)


def _web(text: str) -> str:
    if not _WEB.fullmatch(text):
        raise UsageError(f"{text!r} is not the address of a server.", "Write http://HOST:PORT, with a path if needed.")
    return text


def _listening(text: str) -> str:
    found = _ADDRESS.fullmatch(text)
    if not found or int(found[2]) > 65_535:
        raise UsageError(
            f"expected HOST:PORT, got {text!r}.", "Write 127.0.0.1:9108, or 0.0.0.0:9108 for all networks."
        )
    return text


def _brokers(text: str) -> str:
    found = [_BROKER.fullmatch(each) for each in text.split(",")]
    if not all(each and int(each["port"]) <= 65_535 for each in found):
        raise UsageError(f"expected HOST:PORT, separated by commas, got {text!r}.", "Write localhost:9092.")
    return text


def _starting_offsets(text: str) -> str:
    """Check a text that :func:`lakeproof.topics.starting_offsets` reads."""
    starting_offsets(text)
    return text


def _starting_files(text: str) -> str:
    """Check a text that :func:`lakeproof.topics.starting_files` reads."""
    starting_files(text)
    return text


def _with_prefix(prefix: str) -> Callable[[str], str]:
    """Name the variables of a model after its fields."""
    return lambda name: f"{prefix}{name.upper()}"


def _in_home(name: str) -> Callable[[dict[str, Any]], Any]:
    """Default value below the folder LAKE_HOME."""
    return lambda fields: fields["home"] / name


def _database_file(value: Any) -> Any:
    """Convert the path of a default database to a URI."""
    return sqlite_uri(value) if isinstance(value, Path) else value


def _cached_jars() -> Path:
    """Folder of the jars in the user's cache, one per list of jars."""
    digest = hashlib.sha256(hashes_of_spark().read_bytes()).hexdigest()
    return user_cache_path("lakeproof", appauthor=False) / f"spark-{digest[:12]}" / "jars"


_Folder = Annotated[Path, _checked(folder)]
_Location = Annotated[str, _checked(folder_or_address)]
_Database = Annotated[str, _checked(database), BeforeValidator(_database_file)]
_SentSecret = Annotated[SecretStr, _checked(_sent)]


class _Concern(BaseModel):
    """A group of settings. Pickles contain no secrets: the process that loads one takes them from its environment."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        validate_by_alias=True,
        validate_by_name=True,
        allow_inf_nan=False,
    )
    secrets: ClassVar[tuple[str, ...]] = ()  # fields with secrets, and with names that belong to them

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        public = {name: _public(getattr(self, name)) for name in self.secrets}
        own = self.secrets if self.holds_secrets() else ()
        return state | {"__dict__": state["__dict__"] | public, "from environment": own}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        for name in state["from environment"]:
            field = type(self).model_fields[name]
            if value := os.environ.get(field.alias or ""):
                self.__dict__[name] = SecretStr(value) if "SecretStr" in repr(field.annotation) else value

    def holds_secrets(self) -> bool:
        """Whether a secret is set."""
        return any(getattr(self, name) != _public(getattr(self, name)) for name in self.secrets)


def _public(value: object) -> str | None:
    """Return the public part of a secret setting: an address without its password, otherwise None."""
    if isinstance(value, SecretStr) or value is None:
        return None
    return without_password(str(value)).replace(":***@", "@")  # libpq then looks at PGPASSWORD and .pgpass


class _InHome(_Concern):
    """Settings with defaults below the folder LAKE_HOME."""

    home: _Folder = Field(Path("target/lake"), alias="LAKE_HOME", description="folder of the embedded lake")


class LandingSettings(_InHome, title="Landing zone"):
    """Where batches land, and how they are discovered and read."""

    uri: Annotated[str, _checked(lambda text: as_uri(folder_or_address(text)))] = Field(
        default_factory=_in_home("landing"),
        alias="LAKE_LANDING",
        description="landing zone, with a folder for each stream",
    )
    source: str | None = None
    """Address of the files of a stream, from `consumer run --source`; no variable sets it."""
    starting_files: Annotated[str, _checked(_starting_files)] = Field(
        "earliest",
        alias="LAKE_STARTING_FILES",
        description="where the first run of a stream of files begins: earliest, latest, or a time "
        "(2026-11-22T06:00:00Z); files that were last modified earlier are not read",
    )
    notification_topic: Annotated[str, _checked(topic_name)] | None = Field(
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


class KafkaSettings(_Concern, title="Kafka", alias_generator=_with_prefix("LAKE_KAFKA_")):
    """How to reach Kafka, and what is read from it."""

    secrets = ("sasl_password", "ssl_key_password")

    bootstrap_servers: Annotated[str, _checked(_brokers)] = Field(
        "localhost:9092", description="addresses of Kafka brokers: HOST:PORT, separated by commas"
    )
    topic: str | None = Field(
        None,
        description="topic of a stream; none: the name of the stream, or LAKE_COLLECTOR_TOPIC for the clickstream",
    )
    starting_offsets: Annotated[str, _checked(_starting_offsets)] = Field(
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
    ssl_ca: _Folder | None = Field(None, description="PEM file of the authorities that sign the brokers' certificates")
    ssl_certificate: _Folder | None = Field(None, description="PEM file of the client's certificate")
    ssl_key: _Folder | None = Field(None, description="PEM file of the certificate's private key, in PKCS #8")
    ssl_key_password: SecretStr | None = Field(None, description="password of the private key")


class CatalogSettings(_InHome, title="Catalog and tables"):
    """The catalog of the tables, and the place of their files."""

    secrets = ("uri", "token", "credential")

    kind: Literal["sql", "rest"] = Field(
        "sql", alias="LAKE_CATALOG", description="kind of Iceberg catalog: sql (SQLite, Postgres) or rest"
    )
    uri: str = Field(
        default_factory=_in_home("catalog.db"),
        alias="LAKE_CATALOG_URI",
        description="database of the catalog, sqlite:///… or postgresql://…, or http://… of the REST catalog",
    )
    warehouse: _Location = Field(
        default_factory=_in_home("warehouse"),
        alias="LAKE_WAREHOUSE",
        description="where Iceberg stores data and metadata; with a REST catalog, the name of one of its warehouses",
    )
    token: _SentSecret | None = Field(None, alias="LAKE_CATALOG_TOKEN", description="bearer token for a REST catalog")
    credential: _SentSecret | None = Field(
        None,
        alias="LAKE_CATALOG_CREDENTIAL",
        description="CLIENT_ID:SECRET for requesting tokens for a REST catalog (OAuth2)",
    )
    sigv4: str | None = Field(
        None,
        pattern="^[a-z0-9-]+$",
        alias="LAKE_CATALOG_SIGV4",
        description="AWS service, glue or s3tables, for which requests to a REST catalog are signed with the keys "
        "and the region for S3; none: requests are not signed",
    )
    oauth2_uri: Annotated[str, _checked(_web)] | None = Field(
        None,
        alias="LAKE_CATALOG_OAUTH2_URI",
        description="token endpoint; none: v1/oauth/tokens of the REST catalog",
    )
    scope: str | None = Field(
        None, alias="LAKE_CATALOG_SCOPE", description="scope of the requested tokens; none: catalog"
    )
    token_exchange: bool = Field(
        True,
        alias="LAKE_CATALOG_TOKEN_EXCHANGE",
        description="whether Spark exchanges a token for the next one (RFC 8693); false: it requests a new token "
        "with the credential, for servers without token exchange",
    )

    @field_validator("uri", mode="before")
    @classmethod
    def _fits_the_kind(cls, uri: Any, info: ValidationInfo) -> Any:
        with _refusal():
            if info.data.get("kind") != "rest":
                return database(_database_file(uri))
            if isinstance(uri, Path):
                raise UsageError("it is not set, but LAKE_CATALOG is rest.", "Set it to the catalog's URL.")
            if not uri.startswith(("http://", "https://")):
                raise UsageError(
                    f"a rest catalog has an http:// or https:// address, not {uri.partition(':')[0]}:.",
                    "Give the catalog's URL, or set LAKE_CATALOG to sql.",
                )
            return uri

    @field_validator("token", "credential", "sigv4", "oauth2_uri", "scope", "token_exchange")
    @classmethod
    def _is_of_rest(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None or value is True:
            return value
        with _refusal():
            if info.data.get("kind") != "rest":
                raise UsageError("it is for a REST catalog only.", "Set LAKE_CATALOG to rest, or leave it unset.")
            others = {"LAKE_CATALOG_TOKEN": "token", "LAKE_CATALOG_CREDENTIAL": "credential"}
            if info.field_name in ("credential", "sigv4"):
                for variable, other in others.items():
                    if info.field_name != other and info.data.get(other):
                        raise UsageError(f"{variable} is set, too.", "Set one of them.")
            if info.field_name == "credential":
                if not all(value.get_secret_value().partition(":")):
                    raise UsageError("expected CLIENT_ID:SECRET.", "Write both, with a colon between them.")
            # A refused credential is not in the data, and only its own error is reported.
            elif info.field_name not in ("token", "sigv4") and info.data.get("credential", value) is None:
                raise UsageError(
                    "it is for LAKE_CATALOG_CREDENTIAL, which is not set.", "Set that as well, or leave it unset."
                )
        return value

    @property
    def warehouse_uri(self) -> str:
        """Root URI of the warehouse, without a trailing slash."""
        return as_plain_uri(self.warehouse)


class StateSettings(_InHome, title="State"):
    """Where discovered files and the progress of queries are recorded."""

    secrets = ("database",)

    database: _Database = Field(
        default_factory=_in_home("landing-log.db"),
        alias="LAKE_LANDING_LOG_URI",
        description="database of the landing log and other state: sqlite:///… or postgresql://…",
    )
    checkpoints: Annotated[str, _checked(lambda text: as_plain_uri(folder_or_address(text)))] = Field(
        default_factory=_in_home("checkpoints"),
        alias="LAKE_CHECKPOINTS",
        description="where the progress of each query is kept",
    )


class SilverSettings(_InHome, title="Silver"):
    """How silver follows bronze."""

    max_rows_per_micro_batch: int = Field(
        500_000,
        ge=1,
        alias="LAKE_MAX_ROWS_PER_SILVER_MICRO_BATCH",
        description="maximum number of bronze rows in one silver micro-batch, or one micro-batch of bronze if it is "
        "larger",
    )
    driver_rows: int = Field(
        500_000,
        ge=0,
        alias="LAKE_SILVER_DRIVER_ROWS",
        description="maximum number of rows in a silver micro-batch that the driver decides; with the strategy "
        "`merge`, tasks decide larger ones",
    )
    index: _Folder = Field(
        default_factory=_in_home("silver-index"),
        alias="LAKE_SILVER_INDEX",
        description="local folder of the key indexes for the strategy `state`",
    )


class Limits(_Concern, title="Limits"):
    """Size limits of batches and records. Larger ones become dead letters without their bytes."""

    unpacked_bytes: int = Field(
        1024**3,
        ge=1,
        alias="LAKE_MAX_UNPACKED_BYTES",
        description="maximum bytes of a batch, unpacked; a larger batch is one dead letter, without its bytes",
    )
    record_bytes: int = Field(
        64 * 1024**2,
        ge=1,
        le=1024**3,
        alias="LAKE_MAX_RECORD_BYTES",
        description="maximum bytes of a record; a larger record is a dead letter without its bytes",
    )


class MaintenanceSettings(_Concern, title="Maintenance", alias_generator=_with_prefix("LAKE_MAINTENANCE_")):
    """How tables are maintained."""

    every_minutes: float = Field(
        15.0,
        gt=0,
        le=_LONGEST_HOURS * 60,
        description="time between two maintenances while a stream runs, with `consumer run --maintain`",
    )
    keep_hours: float = Field(
        1.0,
        gt=0,
        le=_LONGEST_HOURS,
        description="age at which snapshots expire, except the newest of each table",
    )
    orphan_hours: float = Field(
        72.0,
        ge=24,
        le=_LONGEST_HOURS,
        description="age at which files that no snapshot needs are removed, at least a day",
    )
    file_mib: int = Field(128, ge=1, le=4096, description="target size of compacted data files, in MiB")
    compact: bool = Field(True, description="whether data files are compacted")
    after_commits: int = Field(
        1_000, ge=1, description="number of commits to a table after which it is maintained at once while a stream runs"
    )
    after_files: int = Field(500, ge=1, description="the same for a number of small data files")
    after_mib: int = Field(1024, ge=1, description="the same for MiB in small data files")


class ErasureSettings(_Concern, title="Erasure"):
    """What erasures record about their conditions."""

    secrets = ("key",)

    key: SecretStr | None = Field(
        None,
        min_length=16,
        alias="LAKE_ERASURE_KEY",
        description="secret for hashing the conditions of erasures: keep it, to check later what was erased",
    )


class MonitorSettings(_Concern, title="Monitoring"):
    """What an application reports to other programs."""

    metrics: Annotated[str, _checked(_listening)] | None = Field(
        None,
        alias="LAKE_METRICS",
        description="address at which `consumer run` serves metrics for Prometheus, like 127.0.0.1:9108; port 0: any",
    )
    seconds: float = Field(
        15.0,
        ge=1,
        le=3600,
        alias="LAKE_METRICS_SECONDS",
        description="time between two measurements of tables, landing zone and topics, at least ten times the "
        "duration of one",
    )
    lineage: bool = Field(
        False,
        alias="LAKE_LINEAGE",
        description="whether `consumer run` sends OpenLineage events, to OPENLINEAGE_URL or as openlineage.yml says",
    )
    lineage_seconds: float = Field(
        60.0, ge=1, le=86_400, alias="LAKE_LINEAGE_SECONDS", description="time between two events of a running query"
    )
    lineage_namespace: str = Field(
        "lakeproof",
        min_length=1,
        alias="OPENLINEAGE_NAMESPACE",
        description="namespace of the queries in OpenLineage events",
    )


class SparkSettings(_Concern, title="Spark"):
    """How Spark is started."""

    master: Annotated[str, _checked(_master)] = Field(
        "local[*]", alias="LAKE_SPARK_MASTER", description="Spark master: local[4], spark://HOST:PORT, yarn, k8s://…"
    )
    ui_port: int = Field(
        4040, ge=0, le=65535, alias="LAKE_SPARK_UI_PORT", description="port of Spark's web page; 0: any"
    )
    driver_memory: Annotated[str, _checked(_memory)] = Field(
        "2g",
        alias="LAKE_DRIVER_MEMORY",
        description=f"heap of the Spark driver: a whole number with m or g, at least {_LEAST_MEGABYTES}m",
    )
    jars: _Folder = Field(
        default_factory=_cached_jars,
        alias="LAKE_JARS",
        description="folder of Spark's jars; `lakeproof setup` fills it",
    )
    without: Annotated[str, _checked(_shortcuts)] | None = Field(
        None,
        alias="LAKE_SPARK_WITHOUT",
        description=f"shortcuts of Spark's start to disable: some of {', '.join(_SHORTCUTS)}, or all",
    )
    python: str | None = Field(
        None,
        min_length=1,
        alias="LAKE_SPARK_PYTHON",
        description="Python of the executors on a cluster, a path on their machines; none: the same path as the "
        "driver's, or python3.11 with LAKE_SPARK_ENVIRONMENT, if that is the driver's version",
    )
    environment: _Location | None = Field(
        None,
        alias="LAKE_SPARK_ENVIRONMENT",
        description="archive of Python packages for the executors; `lakeproof cluster pack` creates it",
    )
    shared: Annotated[str, _checked(_folders)] | None = Field(
        None,
        alias="LAKE_SPARK_SHARED",
        description="folders at the same path on the driver and all executors, separated by commas",
    )
    executors: int | None = Field(
        None,
        ge=1,
        alias="LAKE_EXECUTORS",
        description="executors to request from a cluster, and to wait for at the start; none: up to the cluster",
    )
    executor_cores: int | None = Field(
        None, ge=1, alias="LAKE_EXECUTOR_CORES", description="cores of an executor; none: the cluster's default"
    )
    executor_memory: Annotated[str, _checked(_memory)] = Field(
        "1g",
        alias="LAKE_EXECUTOR_MEMORY",
        description="heap of an executor, without its Python processes, which do the work",
    )
    executor_overhead: Annotated[str, _checked(_memory)] | None = Field(
        None,
        alias="LAKE_EXECUTOR_OVERHEAD",
        description="memory of an executor outside its heap, for its Python processes; none: 1g for each core",
    )

    def takes(self, shortcut: str) -> bool:
        """Whether Spark starts with one of the shortcuts."""
        return self.without is None or not {shortcut, "all"} & set(self.without.split(","))

    @property
    def is_remote(self) -> bool:
        """Whether tasks run on other machines than the driver's."""
        return not self.master.startswith("local")

    @property
    def python_of_executors(self) -> str:
        """The Python that runs tasks on the machines of a cluster."""
        of_version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.python or (of_version if self.environment else sys.executable)


class TopicSettings(_Concern, title="Kafka topics", alias_generator=_with_prefix("LAKE_TOPIC_")):
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


class RegistrySettings(_Concern, title="Schema registry", alias_generator=_with_prefix("LAKE_SCHEMA_REGISTRY_")):
    """How to reach a schema registry with Confluent's API."""

    secrets = ("password",)

    url: Annotated[str, _checked(_web)] | None = Field(
        None, description="address of a schema registry with Confluent's API; none: contracts are not registered"
    )
    username: str | None = Field(None, description="user of the registry")
    password: SecretStr | None = Field(None, description="password of the registry's user")


class SinkSettings(_InHome, title="Sinks"):
    """Where tables are published."""

    silver_topic: Annotated[str, _checked(_topic_of_streams)] | None = Field(
        None,
        alias="LAKE_SILVER_TOPIC",
        description="Kafka topic for the rows of silver, like silver.{stream}; none: they are not sent",
    )
    dead_letter_topic: Annotated[str, _checked(_topic_of_streams)] | None = Field(
        None,
        alias="LAKE_DEAD_LETTER_TOPIC",
        description="Kafka topic for the dead letters, like dead-letters.{stream}; none: they are not sent",
    )
    files: Annotated[str, _checked(lambda text: as_plain_uri(folder_or_address(text)))] = Field(
        default_factory=_in_home("published"),
        alias="LAKE_PUBLISHED",
        description="place of the Parquet files of data products, with a folder for each product",
    )


class CollectorSettings(_Concern, title="Collector", alias_generator=_with_prefix("LAKE_COLLECTOR_")):
    """Limits and addresses of the collector."""

    host: str = Field("127.0.0.1", description="address that the collector listens on")
    port: int = Field(8080, ge=0, le=65535, description="port that the collector listens on; 0: any")
    topic: Annotated[str, _checked(topic_name)] = Field(
        "acme.clickstream.raw.events", description="Kafka topic of the events"
    )
    probe_topic: Annotated[str, _checked(topic_name)] = Field(
        "acme.clickstream.raw.probes", description="Kafka topic of the probes, which show that the brokers acknowledge"
    )

    @field_validator("probe_topic")
    @classmethod
    def _is_another(cls, probe_topic: str, info: ValidationInfo) -> str:
        with _refusal():
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
    body_seconds: float = Field(10.0, gt=0, description="how long a client may take to send a head or a body")
    max_body_bytes: int = Field(1024**2, ge=2, le=64 * 1024**2, description="maximum bytes of a body as sent")
    max_unpacked_bytes: int = Field(4 * 1024**2, ge=2, le=64 * 1024**2, description="maximum bytes of a body, unpacked")
    max_events: int = Field(1000, ge=1, description="maximum number of events in a post")
    max_event_bytes: int = Field(
        512 * 1024, ge=32, le=900_000, description="maximum bytes of an event; Kafka must accept messages of this size"
    )
    max_queue_bytes: int = Field(128 * 1024**2, ge=1024**2, description="memory for all unanswered posts")
    max_connections: int = Field(12_000, ge=1, description="maximum number of simultaneous connections")
    keys: _Folder | None = Field(None, description="file of API keys; none: no key is required")
    events_per_second: float | None = Field(
        None, gt=0, description="maximum number of events per second from each client, with API keys; none: no limit"
    )
    origins: Annotated[str, _checked(_origins)] | None = Field(
        None, description="origins of pages that may post, separated by commas (https://shop.example), or *"
    )


class ServeSettings(_Concern, title="Serve", alias_generator=_with_prefix("LAKE_SERVE_")):
    """Address and token of `reader serve`."""

    secrets = ("token",)

    host: str = Field("127.0.0.1", description="address that `reader serve` listens on")
    port: int = Field(8181, ge=0, le=65535, description="port that `reader serve` listens on; 0: any")
    token: Annotated[SecretStr, _checked(_token)] | None = Field(
        None,
        description="token that clients of `reader serve` must send; none: it generates and prints one at each start",
    )


class ModeSettings(_InHome):
    """Common settings of the modes on Kafka; each mode has its own variables and settings file."""

    topic: Annotated[str, _checked(topic_name)] = Field("incoming-events", description="topic to read")
    starting_offsets: Annotated[str, _checked(_starting_offsets)] = Field(
        "earliest", description="where the first run begins, as in `LAKE_KAFKA_STARTING_OFFSETS`"
    )
    max_offsets: int = Field(
        100_000, ge=1, description="maximum number of offsets in one micro-batch, of all partitions"
    )
    event_id: str = Field("eventId", min_length=1, description="field with the id of an event")
    event_time: str = Field("eventTime", min_length=1, description="field with the time of an event")
    event_time_format: str | None = Field(
        None, description="format of these times, as in a contract; none: ISO 8601 with an offset"
    )
    event_time_zone: str | None = Field(None, description="time zone of times without an offset: UTC or an IANA name")
    watermark: str = Field("10 minutes", description="how much older than the newest event an event may be")
    parquet: _Location | None = Field(None, description="sink: a folder of Parquet files")
    kafka: Annotated[str, _checked(topic_name)] | None = Field(None, description="sink: a topic")
    aside_topic: Annotated[str, _checked(topic_name)] | None = Field(
        None, description="topic of bad and late messages; none: they go to a folder"
    )
    checkpoint: _Location | None = Field(
        None, description="folder of the checkpoint; none: a separate folder below `LAKE_CHECKPOINTS`"
    )


class DedupeSettings(ModeSettings, title="Mode dedupe", alias_generator=_with_prefix("LAKE_DEDUPE_")):
    """The mode `dedupe`: each event of a topic once."""

    aside: _Location = Field(
        default_factory=_in_home("aside/dedupe"), description="folder of bad and late messages, as Parquet files"
    )


class WindowsSettings(ModeSettings, title="Mode windows", alias_generator=_with_prefix("LAKE_WINDOWS_")):
    """The mode `windows`: each event of a topic once, in windows of each user."""

    user_id: str = Field(
        "userId", min_length=1, description="field with the user of an event: each window belongs to one user"
    )
    amount: str = Field("amount", min_length=1, description="field with the amount of an event, which each window sums")
    event_type: str = Field(
        "eventType", min_length=1, description="field with the type of an event, which is checked but not kept"
    )
    window: str = Field("5 minutes", description="length of a window")
    aside: _Location = Field(
        default_factory=_in_home("aside/windows"), description="folder of bad and late messages, as Parquet files"
    )


class S3Settings(_Concern, title="S3", alias_generator=_with_prefix("AWS_")):
    """How to reach S3 or MinIO. Unset values are found as by the AWS tools."""

    secrets = ("access_key_id", "secret_access_key", "session_token")

    endpoint_url: str | None = Field(None, description="S3 endpoint, for MinIO and others")
    access_key_id: Annotated[str, _checked(_sent)] | None = Field(None, description="id of the S3 access key")
    secret_access_key: _SentSecret | None = Field(None, description="secret of the S3 access key")
    session_token: _SentSecret | None = Field(None, description="session token of a temporary S3 access key")
    region: str = Field("us-east-1", description="S3 region")


class SourceS3Settings(S3Settings, title="S3 of other buckets", alias_generator=_with_prefix("LAKE_SOURCE_")):
    """How to reach the buckets of streams that land outside of LAKE_LANDING."""

    endpoint_url: str | None = Field(
        None, description="S3 endpoint of streams with their own address; none: AWS_ENDPOINT_URL"
    )
    access_key_id: Annotated[str, _checked(_sent)] | None = Field(
        None, description="id of the S3 access key for them, which only lists and reads; none: AWS_ACCESS_KEY_ID"
    )
    secret_access_key: _SentSecret | None = Field(None, description="secret of that access key")
    session_token: _SentSecret | None = Field(None, description="session token of that access key, if it is temporary")
    region: str = Field("", description="S3 region for them; none: AWS_REGION")


class Settings(_InHome, title="General"):
    """Settings of all programs.

    ``home`` moves all embedded defaults; each part can also be set to a path or a URI (``file://``, ``s3://``).
    """

    contracts: _Folder = Field(Path("contracts"), alias="LAKE_CONTRACTS", description="folder of contract files")
    gold: _Folder = Field(Path("gold"), alias="LAKE_GOLD", description="folder of data product files")
    logs: Annotated[Path, _checked(lambda text: folder(text).absolute())] = Field(
        default_factory=_in_home("logs"), alias="LAKE_LOGS", description="folder of log files"
    )
    judge: Literal["auto", "native", "python"] = Field(
        "auto",
        alias="LAKE_JUDGE",
        description="judge of the consumer: native, python, or auto: native if it is installed",
    )
    landing: LandingSettings
    kafka: KafkaSettings
    catalog: CatalogSettings
    state: StateSettings
    limits: Limits
    silver: SilverSettings
    maintenance: MaintenanceSettings
    erasure: ErasureSettings
    monitor: MonitorSettings
    spark: SparkSettings
    topics: TopicSettings
    registry: RegistrySettings
    sinks: SinkSettings
    collector: CollectorSettings
    dedupe: DedupeSettings
    windows: WindowsSettings
    serve: ServeSettings
    s3: S3Settings
    source_s3: SourceS3Settings

    def s3_of_source(self, endpoint_url: str | None = None) -> S3Settings:
        """Return S3 settings for a stream with its own address; `endpoint_url` is the endpoint of its contract."""
        own = self.source_s3
        found: S3Settings = own if own.access_key_id else self.s3
        endpoint = endpoint_url or own.endpoint_url or self.s3.endpoint_url
        return found.model_copy(update={"endpoint_url": endpoint, "region": own.region or self.s3.region})

    def topic_of(self, stream: str) -> str:
        """Name of a stream's topic; the clickstream uses the collector's."""
        return self.kafka.topic or (self.collector.topic if stream == CLICKSTREAM else stream)


CONCERNS: dict[str, type[BaseModel]] = {"": Settings} | {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, _Concern)
}
"""Models of the settings by field name; the first entry has the top-level fields."""

VARIABLES = {field.alias for concern in CONCERNS.values() for field in concern.model_fields.values() if field.alias}
"""Names of the environment variables."""


def load_settings(defaults: Mapping[str, str] | None = None, options: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment and ``.env``."""
    try:
        _refuse_other_encodings(os.environ)
        _refuse_unknown(os.environ, "the environment")
        in_file = _not_empty(dotenv_values(_DEFAULTS, encoding="utf-8"))
        _refuse_unknown(in_file, _DEFAULTS)
        return settings_of({**(defaults or {}), **in_file, **_not_empty(os.environ), **(options or {})})
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{Path(_DEFAULTS).absolute()} is not UTF-8: {error.reason} at byte {error.start}.",
            "Save it as UTF-8, or remove it.",
        ) from None


def secrets_of(settings: Settings) -> dict[str, str | None]:
    """Return variables that a process needs besides pickled settings, see :class:`_Concern`; None means unset."""
    found: dict[str, str | None] = {}
    for name in filter(None, CONCERNS):
        concern = getattr(settings, name)
        for field in concern.secrets if concern.holds_secrets() else ():
            value, variable = getattr(concern, field), str(type(concern).model_fields[field].alias)
            found[variable] = value.get_secret_value() if isinstance(value, SecretStr) else value
    return found


def export_secrets(settings: Settings) -> None:
    """Export secrets to the environment of child processes."""
    for variable, value in secrets_of(settings).items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value


def settings_of(variables: Mapping[str, Any]) -> Settings:
    """Make settings from variables. None means unset; unknown names are ignored."""

    def own(concern: type[BaseModel]) -> dict[str, Any]:
        names = [field.alias for field in concern.model_fields.values() if field.alias]
        return {name: variables[name] for name in names if variables.get(name) is not None}

    fields = {name: own(concern) for name, concern in CONCERNS.items()}
    try:
        return Settings.model_validate(fields.pop("") | fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = _field(first["loc"])
        if field and SecretStr.__name__ in repr(field.annotation):
            first["input"] = "***"
        message, hint = expected(first), "Correct it in the environment or in .env."
        if first["type"] == "value_error":
            message, hint = first["ctx"]["error"].args
        raise UsageError(f"{_variable(first['loc'])}: {message}", hint) from None


def _field(location: tuple[int | str, ...]) -> FieldInfo | None:
    """Return the field that pydantic refused: by its variable, or for defaults by its name; None if unknown."""
    *concern, name = map(str, location)
    fields = CONCERNS["".join(concern)].model_fields
    return fields.get(name) or next((field for field in fields.values() if field.alias == name), None)


def _variable(location: tuple[int | str, ...]) -> str:
    """Return the variable that pydantic refused."""
    field = _field(location)
    return field.alias if field and field.alias else str(location[-1])


def _not_empty(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return variables by upper-case name, without empty ones."""
    return {name.upper(): value for name, value in variables.items() if value != ""}


def _refuse_unknown(names: Iterable[str], where: str) -> None:
    """Refuse unknown names with our prefix, which would be ignored silently."""
    known = {name.removeprefix(_PREFIX) for name in VARIABLES if name.startswith(_PREFIX)}
    for name in map(str.upper, names):
        own = name.removeprefix(_PREFIX)
        if name == own or own in known or name in _OTHERS:
            continue
        likely = get_close_matches(own, known, n=1)
        hint = f"Did you mean {_PREFIX}{likely[0]}?" if likely else "`lakeproof settings` lists all settings."
        if own.startswith("S3"):
            hint = "S3 is reached by AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION."
        raise UsageError(f"{name} in {where} is not a setting.", hint)


def _refuse_other_encodings(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        if name.upper().startswith((_PREFIX, _S3_PREFIX)):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise UsageError(f"{name} is not UTF-8: {os.fsencode(value)!r}.", "Write it in UTF-8.") from None
