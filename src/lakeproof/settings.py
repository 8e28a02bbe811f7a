"""Where everything is. The only module that reads the environment.

Variables begin with ``LAKE_``; S3 uses the names that every AWS tool knows. A ``.env`` file in the working
directory holds defaults, the real environment wins.
"""

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from lakeproof.errors import UsageError


class S3Settings(BaseSettings):
    """How to reach S3 or MinIO (``AWS_*``). All empty means: as the AWS tools find it."""

    model_config = SettingsConfigDict(
        env_prefix="AWS_", env_file=".env", extra="ignore", frozen=True, env_ignore_empty=True
    )

    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    region: str = "us-east-1"


class Settings(BaseSettings):
    """Settings of all programs (``LAKE_*``).

    ``home`` moves the whole embedded default; each part can be set apart as a path or a URI (``file://``, ``s3://``).
    """

    model_config = SettingsConfigDict(
        env_prefix="LAKE_", env_file=".env", extra="ignore", frozen=True, env_ignore_empty=True
    )

    home: Path = Field(Path("target/lake"), description="the folder of the embedded default")
    landing: str | None = Field(None, description="landing zone, one folder per stream under it")
    warehouse: str | None = Field(None, description="where Iceberg keeps data and metadata")
    checkpoints: str | None = Field(None, description="where Spark keeps the progress of each query")
    logs: Path | None = Field(None, description="folder of log files")
    contracts: Path = Field(Path("contracts"), description="folder of contract files")
    catalog: Literal["sql", "rest"] = Field("sql", description="kind of Iceberg catalog")
    catalog_uri: str | None = Field(None, description="sqlite:///…, postgresql://… or the REST catalog's http://…")
    landing_log_uri: str | None = Field(None, description="database of discovered files: sqlite:///… or postgresql://…")
    settle_seconds: float = Field(1.0, ge=0, description="how long a local file is left alone before it is read")
    sweep_seconds: float = Field(300.0, gt=0, description="time between two looks at the whole landing zone")
    max_files_per_micro_batch: int = Field(10_000, ge=1, description="files that one micro-batch takes at most")
    max_bytes_per_micro_batch: int = Field(
        512 * 1024**2, ge=1, description="bytes of files that one micro-batch takes at most, or one file"
    )
    spark_master: str = Field("local[*]", description="Spark master")
    spark_ui_port: int = Field(4040, ge=0, le=65535, description="port of Spark's web page; 0: any")
    driver_memory: str = Field("2g", description="heap of the Spark driver")
    jars: Path = Field(Path("target/jars/spark"), description="folder of the jars that Spark starts with")
    s3: S3Settings = Field(default_factory=S3Settings)

    @cached_property
    def landing_uri(self) -> str:
        """Root URI of the landing zone, without a slash at its end."""
        return _uri(self.landing, self.home / "landing")

    @cached_property
    def warehouse_uri(self) -> str:
        """Root URI of the warehouse, without a slash at its end."""
        return _plain_uri(self.warehouse, self.home / "warehouse")

    @cached_property
    def checkpoints_uri(self) -> str:
        """Root URI of the checkpoints, without a slash at its end."""
        return _plain_uri(self.checkpoints, self.home / "checkpoints")

    @cached_property
    def logs_dir(self) -> Path:
        """Folder of log files, absolute."""
        return (self.logs or self.home / "logs").absolute()

    @cached_property
    def catalog_database(self) -> str:
        """URI of the catalog: a database for ``sql``, an HTTP address for ``rest``."""
        if self.catalog_uri:
            return self.catalog_uri
        if self.catalog == "rest":
            raise UsageError("LAKE_CATALOG is rest, but LAKE_CATALOG_URI is not set.", "Set it to the catalog's URL.")
        return f"sqlite:///{(self.home / 'catalog.db').absolute()}"

    @cached_property
    def landing_log_database(self) -> str:
        """URI of the database that remembers which files were discovered."""
        return self.landing_log_uri or f"sqlite:///{(self.home / 'landing-log.db').absolute()}"


def load_settings() -> Settings:
    """Read the settings from the environment and ``.env``.

    Raises
    ------
    UsageError
        A variable has a value that its setting does not take.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "LAKE_" + "_".join(str(part) for part in first["loc"]).upper()
        raise UsageError(f"{name}: {first['msg']}.", "Correct it in the environment or in .env.") from None


def as_uri(path_or_uri: str) -> str:
    """Make a path a ``file://`` URI; a URI stays one, without a slash at its end."""
    return path_or_uri.rstrip("/") if "://" in path_or_uri else Path(path_or_uri).absolute().as_uri()


def _uri(value: str | None, default: Path) -> str:
    return as_uri(str(default) if value is None else value)


def _plain_uri(value: str | None, default: Path) -> str:
    # Iceberg's and Hadoop's file systems take what follows file:// as it is: they decode no percent signs.
    text = str(default) if value is None else value
    return text.rstrip("/") if "://" in text else f"file://{Path(text).absolute()}"
