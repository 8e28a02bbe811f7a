"""DuckDB sessions with the tables of the lake."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeproof.catalog import CATALOG, duckdb_secret, quoted
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings
from reader.catalogs import Catalog
from reader.rest_facade import ROOT_NAMESPACE, serve_catalog
from reader.views import DEAD_LETTERS_TEXT, LANDING, MEMORY, TABLES, view_statements

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation, IOException

_MISSING = re.compile(r"(?:Table|View) with name (.+?) does not exist")
_SUGGESTED = re.compile(r"Did you mean \"[^\"]*\"\?")
# In this order: iceberg needs the other two.
_EXTENSIONS = ("httpfs", "avro", "iceberg")


@dataclass(frozen=True)
class Session:
    """An open DuckDB connection to the lake.

    A thread of this process serves the catalog, so tables may be read only by calls that release the interpreter: the
    connection's ``sql`` and ``execute``, and fetching rows. Methods of relations, such as ``select``, would deadlock.
    """

    connection: "DuckDBPyConnection"
    failures: list[LakeproofError]  # errors of the catalog in the current statement

    def sql(self, statements: str) -> "DuckDBPyRelation | None":
        """Run `statements`; return the result of the last one, if any."""
        with self.errors(statements):
            return self.connection.sql(statements)

    def fetch(self, statement: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Run a statement and return its rows."""
        with self.errors():
            return self.connection.execute(statement, parameters).fetchall()

    def fetch_first(self, rows: str, order: str, most: int) -> tuple[int, list[Any]]:
        """Return the number of rows of a query, and the first ones in an order.

        Not by ``count(*) OVER ()``: over no rows, DuckDB sometimes fails (https://github.com/duckdb/duckdb/issues/22352).
        """
        found = self.fetch(
            f"WITH _rows AS MATERIALIZED ({rows}) SELECT (SELECT count(*) FROM _rows), * FROM _rows "
            f"ORDER BY {order} LIMIT {most}"
        )
        return (found[0][0] if found else 0), [row[1:] for row in found]

    def count(self, rows: str) -> int:
        """Return the number of rows of `rows`, SQL to follow ``FROM``."""
        ((count,),) = self.fetch(f"SELECT count(*) FROM {rows}")
        return int(count)

    def insert(self, table: str, rows: "pa.Table") -> None:
        """Insert Arrow rows into a table of the session, by column position."""
        self.connection.register("rows_to_insert", rows)
        self.fetch(f"INSERT INTO {table} FROM rows_to_insert")
        self.connection.unregister("rows_to_insert")

    def columns(self, table: str) -> set[str]:
        """Return the names of the columns of a table, or of a view of the session."""
        if table.startswith(f"{MEMORY}."):
            return {row[0] for row in self.fetch(f"DESCRIBE {table}")}
        # DESCRIBE would plan a scan, and read all manifests of the table.
        return {row[1] for row in self.fetch(f"PRAGMA table_info({quoted(table)})")}

    @contextmanager
    def errors(self, statements: str = "") -> Iterator[None]:
        """Convert DuckDB's errors; also needed while rows are fetched."""
        import duckdb

        self.failures.clear()
        try:
            yield
        except duckdb.Error as error:
            if self.failures:
                raise self.failures[-1] from error
            if isinstance(error, duckdb.IOException) and _is_of_server(error):
                raise UnavailableError(
                    _one_line(error), "Check AWS_ENDPOINT_URL and the keys, and that the server is running."
                ) from error
            if isinstance(error, duckdb.CatalogException) and "does not exist" in str(error):
                raise LakeproofError(_one_line(error), self._near(str(error), statements)) from error
            raise LakeproofError(_one_line(error)) from error

    def _near(self, error: str, statements: str) -> str:
        """Return suggestions for a table that does not exist, or the tables of the lake."""
        found = self.fetch(f"SELECT schema || '.' || name AS name FROM {MEMORY}.main.{TABLES} ORDER BY ALL")
        names = [name for (name,) in found]
        tables = [name for name in names if name.partition(".")[0] not in (LANDING, DEAD_LETTERS_TEXT)]
        if not tables:
            return "The lake has no tables yet. Run `lakeproof demo`, or the producer and the consumer."
        missing = _MISSING.search(error)
        if missing:
            # The name as written in the statement, with its schema, which the message omits.
            written = re.search(rf'(?:[\w"]+\.)*"?{re.escape(missing[1])}\b', statements)
            near = get_close_matches((written[0] if written else missing[1]).replace('"', ""), names)
            if near:
                return f"Did you mean {', '.join(near)}? `reader tables` lists the tables."
        return f"Tables: {', '.join(tables)}."


@contextmanager
def connect(settings: Settings, catalog: Catalog | None = None) -> Iterator[Session]:
    """Open a session with a catalog, by default the one of the settings, set up by :func:`session_statements`."""
    import duckdb

    failures: list[LakeproofError] = []
    # Checking the signatures of our extensions takes longer than most statements. They are installed together with
    # DuckDB, by the same hashes; extensions that a statement loads later must be signed.
    unsigned = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    with serve_catalog(settings, failures, catalog) as endpoint, unsigned as connection:
        session = Session(connection, failures)
        with session.errors():
            for statement in session_statements(settings, endpoint):
                connection.execute(statement)
        yield session


def session_statements(settings: Settings, endpoint: str) -> Iterator[str]:
    """Yield statements that attach the lake to a new DuckDB session, with times in UTC.

    Tables resolve as ``bronze.events``; ``landing.<stream>`` and ``dead_letters_text.<stream>`` are views.
    """
    # Extensions come from Python packages; DuckDB would download them.
    yield "SET autoinstall_known_extensions = false"
    yield "SET autoload_known_extensions = false"
    # They would take precedence over the keys of the lake. DuckDB accepts this only before it looks for secrets.
    yield "SET allow_persistent_secrets = false"
    for name in _EXTENSIONS:
        yield f"LOAD {quoted(_extension(name))}"
    yield "SET allow_unsigned_extensions = false"
    yield "SET TimeZone = 'UTC'"
    if secret := duckdb_secret(settings):
        yield secret
    # No MAX_TABLE_STALENESS: each statement asks the catalog.
    yield (
        f"ATTACH {quoted(CATALOG)} AS {CATALOG} (TYPE iceberg, ENDPOINT {quoted(endpoint)}, "
        "AUTHORIZATION_TYPE 'none', ACCESS_DELEGATION_MODE 'none', READ_ONLY)"
    )
    yield from view_statements(settings)
    # A name with one dot is looked up in the schemas listed here, else in the first entry's catalog: the lake.
    path = f"{CATALOG}.{ROOT_NAMESPACE},{MEMORY}.main,{MEMORY}.{LANDING},{MEMORY}.{DEAD_LETTERS_TEXT}"
    yield f"SET search_path = {quoted(path)}"


def _extension(name: str) -> Path:
    spec = find_spec(f"duckdb_extension_{name}")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in Path(folder).glob(f"extensions/*/{name}.duckdb_extension"):
            return path
    raise UnavailableError(
        f"The DuckDB extension {name} is not installed.",
        'Install it: pip install "lakeproof[reader]", or `make setup` in a clone.',
    )


def _is_of_server(error: "IOException") -> bool:
    """Return whether a server failed or refused, rather than a single file that is gone."""
    if status := getattr(error, "status_code", None):
        return bool(status != HTTPStatus.NOT_FOUND)
    return " error for HTTP " in str(error)  # no connection, or no answer in time: there is no other mark


def _one_line(error: Exception) -> str:
    """Return DuckDB's message without suggestion and excerpt."""
    return " ".join(_SUGGESTED.sub("", str(error).partition("\n\nLINE ")[0]).split())
