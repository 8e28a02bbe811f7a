"""The database beside the checkpoint: landing log, contracts and leases, in SQLite or Postgres."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, create_engine, event
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from lakeproof.errors import UnavailableError


def open_database(uri: str, tables: MetaData) -> Engine:
    """Open a database, and create the tables that it lacks.

    Parameters
    ----------
    uri
        ``sqlite:///path`` or ``postgresql://…``.
    tables
        What it must have.

    Raises
    ------
    UnavailableError
        It cannot be opened.
    """
    try:
        engine = create_engine(uri.replace("postgresql://", "postgresql+psycopg://", 1))
        if engine.dialect.name == "sqlite":
            if engine.url.database:
                Path(engine.url.database).parent.mkdir(parents=True, exist_ok=True)
            event.listen(engine, "connect", _prepare_sqlite)
        tables.create_all(engine)
    except (SQLAlchemyError, OSError) as error:
        raise UnavailableError(
            f"The landing log cannot be opened: {error.__cause__ or error}.", "Check LAKE_LANDING_LOG_URI."
        ) from error
    return engine


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Begin a transaction, and commit it at the end.

    Raises
    ------
    UnavailableError
        The database does not answer.
    IntegrityError
        A row is there already: what that means is the caller's to say.
    """
    try:
        with engine.begin() as connection:
            yield connection
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        raise UnavailableError(
            f"The landing log's database cannot be used: {getattr(error, 'orig', error)}.",
            "Check LAKE_LANDING_LOG_URI, its server, and the disk.",
        ) from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=60000")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()
