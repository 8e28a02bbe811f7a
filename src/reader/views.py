r"""Views of a session besides the catalog's tables.

- ``landing.<stream>``: one row per landed file: ``_source``, ``size`` in bytes, ``last_modified``, ``content`` (BLOB,
  not unpacked) and ``text`` (null if the content is not UTF-8). Contents are read only if a query uses them.
- ``dead_letters_text.<stream>``: ``dead_letters.<stream>`` with ``raw`` as text, and the additional columns ``codes``
  (of the reasons), ``state`` (open, parked, closed), ``attempts`` (to replay it) and ``last_attempt`` (time).
- ``tables``: schema and name of all tables and views of the lake.
- ``as_text(blob)``: a blob as text; if it is not UTF-8, with ``\xFF`` for each byte that is not ASCII.
"""

import glob
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from lakeproof.catalog import CATALOG, catalog_errors, duckdb_secret_of, quoted
from lakeproof.errors import LakeproofError
from lakeproof.landing.zone import LandingZone, landing_zone, zone_at
from lakeproof.settings import Settings
from lakeproof.storage.local import local_path
from lakeproof.tables.names import (
    ATTEMPT,
    INGESTED_AT,
    LANDING_SOURCE,
    LETTER,
    OUTCOME,
    POSITION,
    RAW,
    REASONS,
    SOURCE,
)
from reader.catalogs import catalog_of
from reader.letters import text_of_letters
from reader.rest_facade import ATTEMPTS_OF, ROOT_NAMESPACE

LANDING = "landing"
DEAD_LETTERS_TEXT = "dead_letters_text"
TABLES = "tables"
MEMORY = "memory"  # DuckDB's name for the session's own database, which contains the views

# BLOB to VARCHAR never fails, but escapes quotes, which are restored to keep JSON readable.
_AS_TEXT = r"""coalesce(try(decode(bytes)), replace(replace(bytes::VARCHAR, '\x22', '"'), '\x27', ''''))"""


def view_statements(settings: Settings) -> Iterator[str]:
    """Yield statements that create the schemas, the views and the macro.

    Views read a variable that is set afterwards: DuckDB binds a view when it is created, which would otherwise list the
    bucket and open the catalog at each start, and fail if nothing has landed yet.
    """
    yield f"CREATE MACRO {MEMORY}.main.as_text(bytes) AS {_AS_TEXT}"
    yield (
        f"CREATE TABLE {MEMORY}.main.nothing ({REASONS} STRUCT(code VARCHAR)[], {RAW} BLOB, {SOURCE} VARCHAR, "
        f"{POSITION} BIGINT, {ATTEMPT} INTEGER, {LETTER} INTEGER, {OUTCOME} VARCHAR, {INGESTED_AT} TIMESTAMPTZ)"
    )
    for schema in (LANDING, DEAD_LETTERS_TEXT):
        yield f"CREATE SCHEMA {MEMORY}.{schema}"
    yield _tables_view()
    for stream in _streams_to_show(settings):
        yield from _landing_view(_zone(settings, stream), stream)
        yield from _text_view(stream)
    yield f"DROP TABLE {MEMORY}.main.nothing"


def streams(settings: Settings) -> list[str]:
    """Return the names of streams with a contract, or with a folder in a local landing zone.

    Of names that differ only by case, which would be one view, there is one: that of the contract.
    """
    names = settings.streams
    if settings.landing.uri.startswith("file://"):
        folder = local_path(settings.landing.uri)
        if folder.is_dir():
            names += sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name.isidentifier())
    return sorted({name.lower(): name for name in reversed(names)}.values())


def _streams_to_show(settings: Settings) -> list[str]:
    """Return the streams with tables or a landing zone on this machine, or all streams on a machine without these."""
    known = streams(settings)
    if not (settings.landing.uri.startswith("file://") and settings.catalog.warehouse_uri.startswith("file://")):
        return known  # looking there takes time, and sessions start often
    tables = Path(settings.catalog.warehouse_uri.removeprefix("file://")) / "dead_letters"
    seen = [
        name for name in known if (tables / name).is_dir() or (zone := _zone(settings, name)).is_own or zone.is_there()
    ]
    return seen or known


def _zone(settings: Settings, stream: str) -> LandingZone:
    """Return the landing zone; the one in LAKE_LANDING if contract or ledger cannot be read (reported elsewhere)."""
    try:
        return landing_zone(settings, stream, _recorded(settings, stream))
    except LakeproofError:
        return zone_at(f"{settings.landing.uri}/{stream}", settings.s3)


def _recorded(settings: Settings, stream: str) -> Mapping[str, str]:
    """Return the properties of the ledger if it is on this machine and has the stream's own landing address."""
    if not (settings.catalog.uri.startswith("sqlite:") and settings.catalog.warehouse_uri.startswith("file://")):
        return {}  # looking there takes time, and sessions start often
    with catalog_errors():
        found = catalog_of(settings).metadata(("ledger",), stream)
    if found is None or LANDING_SOURCE not in found[1]:
        return {}
    properties: Mapping[str, str] = json.loads(found[1])["properties"]
    return properties


def _tables_view() -> str:
    lake = (
        f"SELECT schema_name AS schema, table_name AS name "
        f"FROM duckdb_tables() WHERE database_name = {quoted(CATALOG)} AND schema_name <> {quoted(ROOT_NAMESPACE)}"
    )
    views = (
        f"SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = {quoted(MEMORY)} "
        "AND schema_name <> 'main' AND NOT internal"
    )
    return f"CREATE VIEW {MEMORY}.main.{TABLES} AS {lake} UNION ALL {views} ORDER BY ALL"


def landing_glob(root: str) -> str:
    """Return the glob of all files below a landing root."""
    if root.startswith("file://"):
        return glob.escape(str(local_path(root))) + "/**"
    # On S3, escapes are neither supported nor needed; names of buckets have no special characters.
    return f"{root}/**"


def identifier(name: str) -> str:
    """Quote `name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _landing_view(zone: LandingZone, stream: str) -> Iterator[str]:
    root, variable = zone.root, identifier(f"{LANDING}_{stream}")
    if zone.is_own and root.startswith("s3://"):
        yield duckdb_secret_of(variable, zone.s3, f"{root}/")
    folder = str(local_path(root)) if root.startswith("file://") else root
    source = f"replace(filename[{len(folder) + 2}:], '%', '%25')"
    yield f"SET VARIABLE {variable} = []::VARCHAR[]"
    yield (
        f"CREATE VIEW {MEMORY}.{LANDING}.{identifier(stream)} AS "
        f"SELECT {source} AS _source, size, last_modified, content, try(decode(content)) AS text "
        f"FROM read_blob(getvariable({quoted(f'{LANDING}_{stream}')}))"
    )
    yield f"SET VARIABLE {variable} = [{quoted(landing_glob(root))}]"


def _text_view(stream: str) -> Iterator[str]:
    variables = [f"{name}_{stream}" for name in (DEAD_LETTERS_TEXT, "attempts")]
    letters, attempts = (f"query_table(getvariable({quoted(name)}))" for name in variables)
    tables = f"dead_letters.{identifier(stream)}", f"{ROOT_NAMESPACE}.{identifier(f'{ATTEMPTS_OF}{stream}')}"
    for name in variables:
        yield f"SET VARIABLE {identifier(name)} = '{MEMORY}.main.nothing'"
    yield (
        f"CREATE VIEW {MEMORY}.{DEAD_LETTERS_TEXT}.{identifier(stream)} AS "
        f"{text_of_letters(letters, attempts, f'{MEMORY}.main.as_text')}"
    )
    for name, table in zip(variables, tables, strict=True):
        yield f"SET VARIABLE {identifier(name)} = {quoted(f'{CATALOG}.{table}')}"
