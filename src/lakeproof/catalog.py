"""One description of the Iceberg catalog, spelled for Spark, for PyIceberg and for DuckDB.

Nothing else in the project spells a catalog property or an S3 option.
"""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakeproof.errors import UnavailableError
from lakeproof.settings import S3Settings, Settings
from lakeproof.storage import scheme_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG = "lake"
_BUSY_TIMEOUT_MS = "60000"


def open_catalog(settings: Settings) -> "Catalog":
    """Open the catalog with PyIceberg; an embedded one is made where it is missing.

    Raises
    ------
    UnavailableError
        The catalog's database or server cannot be reached.
    """
    from pyiceberg.catalog import load_catalog

    database = settings.catalog_database
    try:
        if database.startswith("sqlite:///"):
            Path(database.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        return load_catalog(CATALOG, **pyiceberg_properties(settings))
    except Exception as error:
        raise UnavailableError(
            f"The catalog {_without_password(database)} cannot be opened: {_first_line(error)}.",
            "Check LAKE_CATALOG, LAKE_CATALOG_URI and that its server runs.",
        ) from error


def pyiceberg_properties(settings: Settings) -> dict[str, str]:
    """Properties for :func:`pyiceberg.catalog.load_catalog`."""
    properties = {"type": settings.catalog, "warehouse": settings.warehouse_uri}
    database = settings.catalog_database
    properties["uri"] = database.replace("postgresql://", "postgresql+psycopg://", 1)
    return properties | _s3_file_io(settings.s3)


def spark_properties(settings: Settings) -> dict[str, str]:
    """Spark configuration of the catalog, of its file access, and of S3A for checkpoints."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    catalog = {"warehouse": settings.warehouse_uri, "cache-enabled": "false"}
    database = settings.catalog_database
    if settings.catalog == "rest":
        catalog |= {"type": "rest", "uri": database}
    elif database.startswith("sqlite:///"):
        path = database.removeprefix("sqlite:///")
        catalog |= {"type": "jdbc", "uri": f"jdbc:sqlite:{path}", "jdbc.busy_timeout": _BUSY_TIMEOUT_MS}
    else:
        parts = urlsplit(database)
        host = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        catalog |= {"type": "jdbc", "uri": f"jdbc:postgresql://{host}{parts.path}"}
        if parts.username:
            catalog["jdbc.user"] = unquote(parts.username)
        if parts.password:
            catalog["jdbc.password"] = unquote(parts.password)
    if scheme_of(settings.warehouse_uri) == "s3":
        # The JDK's HTTP client: Iceberg's default one needs a newer AWS SDK than S3A was built for (see ivy.xml).
        catalog |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "http-client.type": "urlconnection"}
        catalog |= _s3_file_io(settings.s3)
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in catalog.items()},
        **_checkpoint_properties(settings),
    }


def duckdb_secret(settings: Settings) -> str | None:
    """Statement that gives DuckDB access to S3, or None where nothing lies on S3."""
    if not uses_s3(settings):
        return None
    s3 = settings.s3
    options = {"TYPE": "s3", "REGION": _quote(s3.region)}
    if s3.access_key_id and s3.secret_access_key:
        options |= {"KEY_ID": _quote(s3.access_key_id), "SECRET": _quote(s3.secret_access_key.get_secret_value())}
        if s3.session_token:
            options["SESSION_TOKEN"] = _quote(s3.session_token.get_secret_value())
    else:
        options["PROVIDER"] = "credential_chain"
    if s3.endpoint_url:
        parts = urlsplit(s3.endpoint_url)
        options |= {
            "ENDPOINT": _quote(parts.netloc),
            "URL_STYLE": _quote("path"),
            "USE_SSL": str(parts.scheme == "https").lower(),
        }
    return "CREATE OR REPLACE SECRET lake_s3 (" + ", ".join(f"{key} {value}" for key, value in options.items()) + ")"


def uses_s3(settings: Settings) -> bool:
    """Whether any part of the lake lies on S3."""
    uris = (settings.landing_uri, settings.warehouse_uri, settings.checkpoints_uri)
    return "s3" in {scheme_of(uri) for uri in uris}


def _s3_file_io(s3: S3Settings) -> dict[str, str]:
    properties = {"client.region": s3.region, "s3.region": s3.region}
    if s3.endpoint_url:
        properties |= {"s3.endpoint": s3.endpoint_url, "s3.path-style-access": "true"}
    if s3.access_key_id and s3.secret_access_key:
        properties |= {
            "s3.access-key-id": s3.access_key_id,
            "s3.secret-access-key": s3.secret_access_key.get_secret_value(),
        }
        if s3.session_token:
            properties["s3.session-token"] = s3.session_token.get_secret_value()
    return properties


def _checkpoint_properties(settings: Settings) -> dict[str, str]:
    manager = "spark.sql.streaming.checkpointFileManagerClass"
    if scheme_of(settings.checkpoints_uri) == "s3":
        # Commits a checkpoint file by completing its upload: S3 has no atomic rename.
        uploads = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
        return {manager: uploads} | _s3a(settings.s3)
    # Renames a file, as Spark's default one does, but without starting eight processes for it (readlink).
    return {manager: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"}


def _s3a(s3: S3Settings) -> dict[str, str]:
    prefix = "spark.hadoop.fs.s3a"
    properties = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        f"{prefix}.endpoint.region": s3.region,
    }
    if s3.endpoint_url:
        properties |= {f"{prefix}.endpoint": s3.endpoint_url, f"{prefix}.path.style.access": "true"}
    if s3.access_key_id and s3.secret_access_key:
        properties |= {
            f"{prefix}.access.key": s3.access_key_id,
            f"{prefix}.secret.key": s3.secret_access_key.get_secret_value(),
        }
        if s3.session_token:
            properties[f"{prefix}.session.token"] = s3.session_token.get_secret_value()
    return properties


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _without_password(database: str) -> str:
    password = urlsplit(database).password
    return database.replace(f":{password}@", ":***@", 1) if password else database


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
