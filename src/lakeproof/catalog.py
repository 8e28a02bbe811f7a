"""Properties of the Iceberg catalog and of S3 for Spark, PyIceberg and DuckDB. No other module contains them."""

import gzip
import os
import re
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from lakeproof.addresses import BUSY_SECONDS, sqlalchemy_uri, sqlite_path, without_password
from lakeproof.commit_checks import check_commits
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.http_server import address_of
from lakeproof.rest_client import ANSWER_SECONDS, CONNECT_SECONDS, limit_requests
from lakeproof.settings import S3Settings, Settings
from lakeproof.storage import scheme_of
from lakeproof.storage.disk import full_disk, local_places
from lakeproof.wording import first_line

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from sqlalchemy import ColumnElement, Engine

CATALOG = "lake"
HIDDEN = r"(?i)secret|password|token|access[.-]?key|credential|jaas|keystore[.]key"
"""Pattern for names of secret properties, valid in Python and Java."""
_OWN = ("lakeproof", "consumer", "reader")
_OF_FILES = ("s3.", "client.", "py-io-impl")
_GZIP = b"\x1f\x8b"
_OWN_TABLES = "SELECT name FROM sqlite_master WHERE name IN ('iceberg_tables', 'iceberg_namespace_properties')"
# PyIceberg creates the tables of an SQL catalog without a lock, so one of two concurrent first starts may fail.
_CATALOG_TABLES = 2
# Postgres: duplicate_table, duplicate_object (its type), unique_violation (in its own tables). SQLite has no specific
# code.
_MADE_MEANWHILE = ("42P07", "42710", "23505", sqlite3.SQLITE_ERROR)


def open_catalog(settings: Settings) -> "Catalog":
    """Open the catalog with PyIceberg; an embedded one is created if missing."""
    database = settings.catalog.uri
    properties = pyiceberg_properties(settings)
    try:
        if path := sqlite_path(database):
            path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(_CATALOG_TABLES):
            try:
                return _loaded(properties)
            except Exception as error:
                if _code_of(error) not in _MADE_MEANWHILE:
                    raise
        return _loaded(properties)
    except Exception as error:
        raise full_disk(error, *local_places(settings)) or UnavailableError(
            f"Cannot open the catalog {without_password(database)}: {first_line(error)}.",
            "Check LAKE_CATALOG, LAKE_CATALOG_URI and the login, and that the server is running."
            if settings.catalog.kind == "rest"
            else "Check LAKE_CATALOG and LAKE_CATALOG_URI, and that the server is running.",
        ) from error


def _loaded(properties: Mapping[str, str]) -> "Catalog":
    """Return the client of a catalog; for a REST catalog, one per process, since each client requests a token."""
    load = _shared if properties["type"] == "rest" else _load
    return load(os.getpid(), tuple(properties.items()))


def _load(_process: int, properties: tuple[tuple[str, str], ...]) -> "Catalog":
    from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType

    own = dict(properties)
    if own["type"] == "rest":
        limit_requests()
    else:
        own["uri"] = sqlalchemy_uri(own["uri"])
    # `load_catalog` would add what PyIceberg's own file and variables say about a catalog of this name.
    catalog = AVAILABLE_CATALOGS[CatalogType(own["type"])](CATALOG, own)
    check_commits(catalog)
    return catalog


_shared = lru_cache(maxsize=4)(_load)


def _code_of(error: Exception) -> str | int | None:
    """Return the code of psycopg or sqlite3 for an error that SQLAlchemy wraps."""
    of_driver = getattr(error, "orig", None)
    code: str | int | None = getattr(of_driver, "sqlstate", None) or getattr(of_driver, "sqlite_errorcode", None)
    return code


@contextmanager
def catalog_errors() -> Iterator[None]:
    """Convert PyIceberg errors into an UnavailableError."""
    try:
        yield
    except LakeproofError:
        raise
    except Exception as error:
        if _is_mistake(error):  # as an outage, it would be retried forever
            raise
        raise unreadable(error) from error


def _is_mistake(error: Exception) -> bool:
    """Return whether our own code is wrong: libraries raise such errors, too, for answers that they do not expect."""
    if not isinstance(error, AttributeError | NameError | TypeError):
        return False
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _OWN


def unreadable(error: Exception) -> UnavailableError:
    """Return the UnavailableError for a PyIceberg error."""
    first_line = (str(error).splitlines() or [""])[0]
    return full_disk(error) or UnavailableError(
        f"Cannot read the catalog: {type(error).__name__}: {first_line}",
        "Check LAKE_CATALOG, LAKE_CATALOG_URI and LAKE_WAREHOUSE, and that what they refer to exists.",
    )


def embedded_rows(database: Path, query: str, *values: str) -> list[dict[str, Any]]:
    """Return rows of the embedded catalog, in the layout that Iceberg's JDBC catalog and PyIceberg share.

    The database is read directly, since importing PyIceberg and SQLAlchemy takes longer than most statements of the
    reader. A catalog without tables, before the first run, has no rows.
    """
    if not database.exists():
        return []
    # Not read-only: a database with a write-ahead log may need recovery.
    address = f"file:{quote(str(database))}?mode=rw"
    with closing(sqlite3.connect(address, timeout=BUSY_SECONDS, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        if len(connection.execute(_OWN_TABLES).fetchall()) < _CATALOG_TABLES:
            return []
        return [dict(row) for row in connection.execute(query, values)]


def table_or_none(catalog: "Catalog", name: str) -> "Table | None":
    """Return a table; None if it does not exist."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None


def database_of(catalog: "Catalog") -> "Engine":
    """Return the engine of an SQL catalog's database."""
    engine: Engine = getattr(catalog, "engine")  # noqa: B009 - of SqlCatalog alone
    return engine


def replace_tables(catalog: "Catalog", tables: Mapping[str, str]) -> None:
    """Replace tables by others, without removing files: ``{"silver.a__rebuild_1": "silver.a"}``.

    In an SQL catalog, this is one transaction: readers see all old tables or all new ones. A REST catalog does not
    support that, so tables are dropped and renamed in turn.
    """
    if not hasattr(catalog, "engine"):
        for new, name in tables.items():
            if catalog.table_exists(name):
                catalog.drop_table(name)
            catalog.rename_table(new, name)
        return
    try:
        _replace_in_database(database_of(catalog), tables)
    except Exception:  # only the answer may be lost: check whether the tables were renamed
        if any(catalog.table_exists(new) for new in tables):
            raise


def row_of(table: str) -> "ColumnElement[bool]":
    """Return the condition for the row of a table in an SQL catalog's database."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import and_

    namespace, _, name = table.rpartition(".")
    own, where = IcebergTables.catalog_name == CATALOG, IcebergTables.table_namespace == namespace
    return and_(own, where, IcebergTables.table_name == name)


def metadata_location(catalog: "Catalog", table: str) -> str | None:
    """Return the metadata location of a table in an SQL catalog; None if the table does not exist."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select

    with database_of(catalog).connect() as connection:
        return connection.scalar(select(IcebergTables.metadata_location).where(row_of(table)))


def _replace_in_database(database: "Engine", tables: Mapping[str, str]) -> None:
    from pyiceberg.catalog.sql import IcebergTables
    from pyiceberg.exceptions import NoSuchTableError
    from sqlalchemy import delete, update

    with database.begin() as connection:
        for new, name in tables.items():
            connection.execute(delete(IcebergTables).where(row_of(name)))
            renamed = update(IcebergTables).where(row_of(new)).values(table_name=name.rpartition(".")[2])
            if connection.execute(renamed).rowcount != 1:
                raise NoSuchTableError(f"Table does not exist: {new}")


def metadata_text(content: bytes) -> str:
    """Return the text of a table's metadata file, which may be compressed; raise a ValueError for a damaged one."""
    try:
        return (gzip.decompress(content) if content.startswith(_GZIP) else content).decode()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"This is not gzip: {error}") from error


def pyiceberg_properties(settings: Settings) -> dict[str, str]:
    """Return the properties of the catalog for PyIceberg."""
    database = settings.catalog.uri
    if settings.catalog.kind == "rest":
        own = {"uri": database} | _rest_warehouse(settings) | rest_login(settings)
        if settings.catalog.sigv4:  # under the names of PyIceberg
            own |= {"rest.sigv4-enabled": "true"}
            own |= _keys(settings.s3, "client.access-key-id", "client.secret-access-key", "client.session-token")
    else:
        uri = database.replace("postgresql://", "postgresql+psycopg://", 1)
        own = {"uri": uri, "warehouse": settings.catalog.warehouse_uri}
        if not sqlite_path(database):  # the server may close a connection that is idle for long
            own |= {"pool_pre_ping": "true"}
    if scheme_of(settings.catalog.warehouse_uri) == "file":
        own["py-io-impl"] = "lakeproof.file_io.PlainFileIO"
    return {"type": settings.catalog.kind} | own | _s3_file_io(settings.s3)


def io_for_tasks(io: "FileIO") -> "FileIO":
    """Return access to a table's files without secrets, for pickling; keys are found like in AWS tools."""
    own = {name: value for name, value in io.properties.items() if name.startswith(_OF_FILES)}
    return type(io)({name: value for name, value in own.items() if not re.search(HIDDEN, name)})


def served_properties(settings: Settings) -> dict[str, str]:
    """Return properties for clients of `reader serve`: for PyIceberg, or with a prefix for Spark."""
    own = {"type": "rest", "uri": address_of(settings.serve.host, settings.serve.port)}
    if settings.serve.token:
        own["token"] = settings.serve.token.get_secret_value()
    return own | (_s3_file_io(settings.s3) if uses_s3(settings) else {})


def spark_properties(settings: Settings) -> dict[str, str]:
    """Return the Spark configuration of the catalog, its file access, and S3A for checkpoints."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    catalog = {"cache-enabled": "false"}
    database = settings.catalog.uri
    # The JDK's HTTP client: Iceberg's default one needs a newer AWS SDK than S3A was built for (see ivy.xml).
    on_s3 = {"http-client.type": "urlconnection"} | _s3_file_io(settings.s3)
    if settings.catalog.kind == "rest":
        # Only the server knows the locations of tables: Iceberg resolves the file access by address.
        catalog |= {"type": "rest", "uri": database} | _rest_warehouse(settings) | rest_login(settings) | on_s3
        catalog |= {
            "rest.client.connection-timeout-ms": str(CONNECT_SECONDS * 1000),
            "rest.client.socket-timeout-ms": str(ANSWER_SECONDS * 1000),
        }
    else:
        catalog |= {"type": "jdbc", "warehouse": settings.catalog.warehouse_uri} | _jdbc(database)
        if scheme_of(settings.catalog.warehouse_uri) == "s3":
            catalog |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"} | on_s3
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in catalog.items()},
        **_checkpoint_properties(settings),
    }


def duckdb_secret(settings: Settings) -> str | None:
    """Return the statement that gives DuckDB access to S3; None if the lake does not use S3."""
    return duckdb_secret_of("lake_s3", settings.s3) if uses_s3(settings) else None


def duckdb_secret_of(name: str, s3: S3Settings, scope: str | None = None) -> str:
    """Return the statement that gives DuckDB access to S3, or only to addresses below a scope."""
    options = {"TYPE": "s3", "REGION": quoted(s3.region)} | ({"SCOPE": quoted(scope)} if scope else {})
    keys = _keys(s3, "KEY_ID", "SECRET", "SESSION_TOKEN")
    options |= {name: quoted(value) for name, value in keys.items()} or {"PROVIDER": "credential_chain"}
    if s3.endpoint_url:
        parts = urlsplit(s3.endpoint_url)
        options |= {
            "ENDPOINT": quoted(parts.netloc),
            "URL_STYLE": quoted("path"),
            "USE_SSL": str(parts.scheme == "https").lower(),
        }
    return f"CREATE OR REPLACE SECRET {name} (" + ", ".join(f"{key} {value}" for key, value in options.items()) + ")"


def uses_s3(settings: Settings) -> bool:
    """Whether the lake may use S3; with a REST catalog, that is unknown before a table is loaded."""
    uris = (settings.landing.uri, settings.catalog.warehouse_uri, settings.state.checkpoints)
    if "s3" in {scheme_of(uri) for uri in uris}:
        return True
    return settings.catalog.kind == "rest" and settings.s3.access_key_id is not None


def _rest_warehouse(settings: Settings) -> dict[str, str]:
    """Return the warehouse of a REST catalog; empty if unset, for a server with a single warehouse."""
    if "warehouse" not in settings.catalog.model_fields_set:
        return {}
    return {"warehouse": settings.catalog.warehouse.rstrip("/")}


def rest_login(settings: Settings) -> dict[str, str]:
    """Return the login properties of a REST catalog, which Iceberg and PyIceberg share."""
    own = settings.catalog
    if own.token:
        return {"token": own.token.get_secret_value()}
    if own.sigv4:
        signing = {"rest.auth.type": "sigv4", "rest.auth.sigv4.delegate-auth-type": "none"}
        signing |= {"rest.signing-name": own.sigv4, "rest.signing-region": settings.s3.region}
        return signing | _keys(settings.s3, "rest.access-key-id", "rest.secret-access-key", "rest.session-token")
    if not own.credential:
        return {}
    login = {
        "credential": own.credential.get_secret_value(),
        "oauth2-server-uri": own.oauth2_uri or f"{own.uri.rstrip('/')}/v1/oauth/tokens",
        "token-exchange-enabled": str(own.token_exchange).lower(),
    }
    return login | ({"scope": own.scope} if own.scope else {})


def _jdbc(database: str) -> dict[str, str]:
    """Return the JDBC address of a database, and the properties of its user."""
    if path := sqlite_path(database):
        # As a URI, since the driver would parse ? in a plain path as the start of options.
        return {"uri": f"jdbc:sqlite:file:{quote(str(path))}", "jdbc.busy_timeout": str(BUSY_SECONDS * 1000)}
    parts = urlsplit(database)
    query = dict(parse_qsl(parts.query))
    user = query.pop("user", unquote(parts.username or ""))
    password = query.pop("password", unquote(parts.password or ""))
    where = parts.netloc.rpartition("@")[2]
    # Spark's UI redacts properties by name, but not an address with sslpassword.
    properties = {f"jdbc.{name}": query.pop(name) for name in [*query] if re.search(HIDDEN, name)}
    properties["uri"] = f"jdbc:postgresql://{where}{parts.path}{'?' * bool(query)}{urlencode(query)}"
    # Options in the address take precedence. The driver would wait for a server that has vanished without a reset.
    properties |= {"jdbc.tcpKeepAlive": "true", "jdbc.socketTimeout": str(ANSWER_SECONDS)}
    if user:
        properties["jdbc.user"] = user
    if password:
        properties["jdbc.password"] = password
    return properties


def s3_without_keys(s3: S3Settings) -> dict[str, str]:
    """Return the S3 properties for Iceberg and PyIceberg, without secrets."""
    properties = {"client.region": s3.region, "s3.region": s3.region}
    if s3.endpoint_url:
        properties |= {"s3.endpoint": s3.endpoint_url, "s3.path-style-access": "true"}
    return properties


def _s3_file_io(s3: S3Settings) -> dict[str, str]:
    return s3_without_keys(s3) | _keys(s3, "s3.access-key-id", "s3.secret-access-key", "s3.session-token")


def _keys(s3: S3Settings, key_id: str, secret: str, token: str) -> dict[str, str]:
    """Return the keys of the settings under a client's own names; empty if the client finds its keys itself."""
    if not (s3.access_key_id and s3.secret_access_key):
        return {}
    of_session = {token: s3.session_token.get_secret_value()} if s3.session_token else {}
    return {key_id: s3.access_key_id, secret: s3.secret_access_key.get_secret_value(), **of_session}


def _checkpoint_properties(settings: Settings) -> dict[str, str]:
    manager = "spark.sql.streaming.checkpointFileManagerClass"
    if scheme_of(settings.state.checkpoints) == "s3":
        # Commits a checkpoint file by completing its upload: S3 has no atomic rename.
        uploads = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
        return {manager: uploads} | _s3a(settings.s3)
    if not settings.spark.takes("files"):
        return {}
    # Renames files like Spark's default manager, but without starting eight processes (readlink) for each.
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
    return properties | _keys(s3, f"{prefix}.access.key", f"{prefix}.secret.key", f"{prefix}.session.token")


def quoted(text: object) -> str:
    """Quote a text as an SQL string."""
    return "'" + str(text).replace("'", "''") + "'"
