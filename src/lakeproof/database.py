"""The database beside the checkpoint: landing log, contracts and leases, in SQLite or Postgres."""

from pathlib import Path
from typing import Any

from sqlalchemy import Engine, MetaData, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

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


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=60000")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()
