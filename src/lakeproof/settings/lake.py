"""Settings of the lake: catalog, state, limits, layers, sinks and S3."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from lakeproof.addresses import as_plain_uri, database, folder_or_address, web_address
from lakeproof.errors import UsageError
from lakeproof.settings.checks import (
    Database,
    Folder,
    HeaderSecret,
    Location,
    checked,
    database_file,
    header_secret,
    refusal,
    stream_topic,
)
from lakeproof.settings.group import InHome, SettingsGroup, in_home, with_prefix


class CatalogSettings(InHome, title="Catalog and tables"):
    """The catalog of the tables, and the place of their files."""

    secrets = ("uri", "token", "credential")

    kind: Literal["sql", "rest"] = Field(
        "sql", alias="LAKE_CATALOG", description="kind of Iceberg catalog: sql (SQLite, Postgres) or rest"
    )
    uri: str = Field(
        default_factory=in_home("catalog.db"),
        alias="LAKE_CATALOG_URI",
        description="database of the catalog, sqlite:///… or postgresql://…, or http://… of the REST catalog",
    )
    warehouse: Location = Field(
        default_factory=in_home("warehouse"),
        alias="LAKE_WAREHOUSE",
        description="where Iceberg stores data and metadata; with a REST catalog, the name of one of its warehouses",
    )
    token: HeaderSecret | None = Field(None, alias="LAKE_CATALOG_TOKEN", description="bearer token for a REST catalog")
    credential: HeaderSecret | None = Field(
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
    oauth2_uri: Annotated[str, checked(web_address)] | None = Field(
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
        with refusal():
            if info.data.get("kind") != "rest":
                return database(database_file(uri))
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
        with refusal():
            if info.data.get("kind") != "rest":
                raise UsageError("it is for a REST catalog only.", "Set LAKE_CATALOG to rest, or leave it unset.")
            others = {"LAKE_CATALOG_TOKEN": "token", "LAKE_CATALOG_CREDENTIAL": "credential"}
            if info.field_name in ("credential", "sigv4"):
                for variable, other in others.items():
                    if info.field_name != other and info.data.get(other):
                        raise UsageError(f"{variable} is set, too.", "Set one of them.")
            if info.field_name == "credential" and not all(value.get_secret_value().partition(":")):
                raise UsageError("expected CLIENT_ID:SECRET.", "Write both, with a colon between them.")
        return value if info.field_name in ("token", "credential", "sigv4") else cls.set_with("credential", value, info)

    @property
    def warehouse_uri(self) -> str:
        """Root URI of the warehouse, without a trailing slash."""
        return as_plain_uri(self.warehouse)


class StateSettings(InHome, title="State"):
    """Where discovered files and the progress of queries are recorded."""

    secrets = ("database",)

    database: Database = Field(
        default_factory=in_home("landing-log.db"),
        alias="LAKE_LANDING_LOG_URI",
        description="database of the landing log and other state: sqlite:///… or postgresql://…",
    )
    checkpoints: Annotated[str, checked(lambda text: as_plain_uri(folder_or_address(text)))] = Field(
        default_factory=in_home("checkpoints"),
        alias="LAKE_CHECKPOINTS",
        description="where the progress of each query is kept",
    )


class SilverSettings(InHome, title="Silver"):
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
    index: Folder = Field(
        default_factory=in_home("silver-index"),
        alias="LAKE_SILVER_INDEX",
        description="local folder of the key indexes for the strategy `state`",
    )


class Limits(SettingsGroup, title="Limits"):
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


class SinkSettings(InHome, title="Sinks"):
    """Where tables are published."""

    silver_topic: Annotated[str, checked(stream_topic)] | None = Field(
        None,
        alias="LAKE_SILVER_TOPIC",
        description="Kafka topic for the rows of silver, like silver.{stream}; none: they are not sent",
    )
    dead_letter_topic: Annotated[str, checked(stream_topic)] | None = Field(
        None,
        alias="LAKE_DEAD_LETTER_TOPIC",
        description="Kafka topic for the dead letters, like dead-letters.{stream}; none: they are not sent",
    )
    files: Annotated[str, checked(lambda text: as_plain_uri(folder_or_address(text)))] = Field(
        default_factory=in_home("published"),
        alias="LAKE_PUBLISHED",
        description="place of the Parquet files of data products, with a folder for each product",
    )


class S3Settings(SettingsGroup, title="S3", alias_generator=with_prefix("AWS_")):
    """How to reach S3 or MinIO. Unset values are found as by the AWS tools."""

    secrets = ("access_key_id", "secret_access_key", "session_token")

    endpoint_url: Annotated[str, checked(web_address)] | None = Field(
        None, description="S3 endpoint, for MinIO and others"
    )
    access_key_id: Annotated[str, checked(header_secret)] | None = Field(None, description="id of the S3 access key")
    secret_access_key: HeaderSecret | None = Field(None, description="secret of the S3 access key")
    session_token: HeaderSecret | None = Field(None, description="session token of a temporary S3 access key")
    region: str = Field("us-east-1", description="S3 region")

    @field_validator("secret_access_key")
    @classmethod
    def _is_of_the_id(cls, secret: SecretStr | None, info: ValidationInfo) -> Any:
        return cls.set_with("access_key_id", secret, info, both=True)

    @field_validator("session_token")
    @classmethod
    def _is_of_a_key(cls, token: SecretStr | None, info: ValidationInfo) -> Any:
        return cls.set_with("access_key_id", token, info)


class SourceS3Settings(S3Settings, title="S3 of other buckets", alias_generator=with_prefix("LAKE_SOURCE_")):
    """How to reach the buckets of streams that land outside of LAKE_LANDING."""

    endpoint_url: Annotated[str, checked(web_address)] | None = Field(
        None, description="S3 endpoint of streams with their own address; none: AWS_ENDPOINT_URL"
    )
    access_key_id: Annotated[str, checked(header_secret)] | None = Field(
        None, description="id of the S3 access key for them, which only lists and reads; none: AWS_ACCESS_KEY_ID"
    )
    secret_access_key: HeaderSecret | None = Field(None, description="secret of that access key")
    session_token: HeaderSecret | None = Field(None, description="session token of that access key, if it is temporary")
    region: str = Field("", description="S3 region for them; none: AWS_REGION")
