"""Where everything is. The only module that reads the environment.

Variables begin with ``LAKE_``; S3 uses the names that every AWS tool knows. A ``.env`` file in the working
directory holds defaults, the real environment wins.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, model_validator
from pydantic_settings import BaseSettings, DotEnvSettingsSource, SettingsConfigDict, SettingsError

from lakeproof.addresses import as_plain_uri, as_uri, database, folder, place, sqlite_uri
from lakeproof.errors import UsageError

_PREFIX = "LAKE_"
_S3_PREFIX = "AWS_"
_DEFAULTS = ".env"
_OTHERS = {"LAKE_DEMO"}
"""Names that are the scripts'."""
_MASTER = re.compile(
    r"local(\[([1-9]\d*|\*)(, *[1-9]\d*)?\])?|local-cluster\[\d+, *\d+, *\d+\]"
    r"|spark://[^/\s:,]+:\d+(,[^/\s:,]+:\d+)*|yarn|k8s://\S+"
)
_MEMORY = re.compile(r"(\d+)([mgt])", re.IGNORECASE)
_MEGABYTES = {"m": 1, "g": 1024, "t": 1024**2}
_LEAST_MEGABYTES = 512


def _named(check: Callable[[str], Any]) -> BeforeValidator:
    """Let `check` take or refuse the text of a variable; the refusal names it."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str | Path):
            return value
        try:
            return check(str(value))
        except UsageError as error:
            raise UsageError(f"{_variable(info.field_name)}: {error.message}", error.hint) from None

    return BeforeValidator(validate)


def _master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a Spark master.", "Write local[*], local[4], spark://HOST:PORT, yarn or k8s://ADDRESS."
        )
    return text


def _memory(text: str) -> str:
    found = _MEMORY.fullmatch(text)
    if not found or int(found[1]) * _MEGABYTES[found[2].lower()] < _LEAST_MEGABYTES:
        raise UsageError(
            f"{text!r} is not a size of memory of {_LEAST_MEGABYTES}m or more.",
            "Write a whole number with m or g, like 2g or 1500m.",
        )
    return text


_Folder = Annotated[Path, _named(folder)]
_Place = Annotated[str, _named(place)]
_Database = Annotated[str, _named(database)]


class S3Settings(BaseSettings):
    """How to reach S3 or MinIO (``AWS_*``). All empty means: as the AWS tools find it."""

    model_config = SettingsConfigDict(
        env_prefix=_S3_PREFIX,
        env_file=_DEFAULTS,
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
        env_ignore_empty=True,
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
        env_prefix=_PREFIX,
        env_file=_DEFAULTS,
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
        env_ignore_empty=True,
    )

    home: _Folder = Field(Path("target/lake"), description="the folder of the embedded default")
    landing: _Place | None = Field(None, description="landing zone, one folder per stream under it")
    warehouse: _Place | None = Field(None, description="where Iceberg keeps data and metadata")
    checkpoints: _Place | None = Field(None, description="where Spark keeps the progress of each query")
    logs: _Folder | None = Field(None, description="folder of log files")
    contracts: _Folder = Field(Path("contracts"), description="folder of contract files")
    catalog: Literal["sql", "rest"] = Field("sql", description="kind of Iceberg catalog")
    catalog_uri: str | None = Field(None, description="sqlite:///…, postgresql://… or the REST catalog's http://…")
    landing_log_uri: _Database | None = Field(
        None, description="database of discovered files: sqlite:///… or postgresql://…"
    )
    settle_seconds: float = Field(1.0, ge=0, description="how long a local file is left alone before it is read")
    sweep_seconds: float = Field(300.0, gt=0, description="time between two looks at the whole landing zone")
    max_files_per_micro_batch: int = Field(10_000, ge=1, description="files that one micro-batch takes at most")
    max_bytes_per_micro_batch: int = Field(
        512 * 1024**2, ge=1, description="bytes of files that one micro-batch takes at most, or one file"
    )
    max_unpacked_bytes: int = Field(1024**3, ge=1, description="bytes of a batch, unpacked, that are read at most")
    max_record_bytes: int = Field(
        64 * 1024**2, ge=1, le=1024**3, description="bytes of one record that are read or kept at most"
    )
    spark_master: Annotated[str, _named(_master)] = Field("local[*]", description="Spark master")
    spark_ui_port: int = Field(4040, ge=0, le=65535, description="port of Spark's web page; 0: any")
    driver_memory: Annotated[str, _named(_memory)] = Field("2g", description="heap of the Spark driver")
    jars: _Folder = Field(Path("target/jars/spark"), description="folder of the jars that Spark starts with")
    s3: S3Settings = Field(default_factory=S3Settings)

    @model_validator(mode="after")
    def _catalog_fits_its_address(self) -> Self:
        uri = self.catalog_uri
        if uri is not None and self.catalog == "sql":
            try:
                database(uri)
            except UsageError as error:
                raise UsageError(f"LAKE_CATALOG_URI: {error.message}", error.hint) from None
        elif uri is not None and not uri.startswith(("http://", "https://")):
            raise UsageError(
                f"LAKE_CATALOG_URI: a rest catalog has an http:// or https:// address, not {uri.partition(':')[0]}:.",
                "Give the catalog's URL, or set LAKE_CATALOG to sql.",
            )
        return self

    @cached_property
    def landing_uri(self) -> str:
        """Root URI of the landing zone, without a slash at its end."""
        return as_uri(self.landing or str(self.home / "landing"))

    @cached_property
    def warehouse_uri(self) -> str:
        """Root URI of the warehouse, without a slash at its end."""
        return as_plain_uri(self.warehouse or str(self.home / "warehouse"))

    @cached_property
    def checkpoints_uri(self) -> str:
        """Root URI of the checkpoints, without a slash at its end."""
        return as_plain_uri(self.checkpoints or str(self.home / "checkpoints"))

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
        return sqlite_uri(self.home / "catalog.db")

    @cached_property
    def landing_log_database(self) -> str:
        """URI of the database that remembers which files were discovered."""
        return self.landing_log_uri or sqlite_uri(self.home / "landing-log.db")


def load_settings() -> Settings:
    """Read the settings from the environment and ``.env``.

    Raises
    ------
    UsageError
        A variable has a value that its setting does not take, there is no setting of that name, or ``.env`` cannot be
        read.
    """
    try:
        _refuse_other_encodings(os.environ)
        _refuse_unknown(os.environ, "the environment")
        _refuse_unknown(DotEnvSettingsSource(Settings).env_vars, _DEFAULTS)
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        prefix = _S3_PREFIX if error.title == S3Settings.__name__ else _PREFIX
        name = prefix + "_".join(str(part) for part in first["loc"]).upper()
        raise UsageError(f"{name}: {first['msg']}.", "Correct it in the environment or in .env.") from None
    except SettingsError as error:
        raise UsageError(f"The settings cannot be read: {error}.", "Correct the environment or .env.") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{Path(_DEFAULTS).absolute()} is not UTF-8: {error.reason} at byte {error.start}.",
            "Write it anew in UTF-8, or remove it.",
        ) from None


def _refuse_unknown(names: Iterable[str], where: str) -> None:
    """Refuse a name that begins like a setting's and is none: it would be ignored, and a default be used."""
    known = {name.upper() for name in Settings.model_fields if name != "s3"}
    for name in map(str.upper, names):
        own = name.removeprefix(_PREFIX)
        if name == own or own in known or name in _OTHERS:
            continue
        likely = get_close_matches(own, known, n=1)
        hint = f"Did you mean {_PREFIX}{likely[0]}?" if likely else "`lakeproof settings` lists all that there are."
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


def _variable(name: str | None) -> str:
    return f"{_PREFIX}{name}".upper()
