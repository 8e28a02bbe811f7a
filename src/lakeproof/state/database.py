"""Open the state database and run transactions."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from sqlalchemy import Engine, create_engine, event, inspect
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from lakeproof.addresses import BUSY_SECONDS, sqlalchemy_uri, sqlite_path
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.state.schema import StateTooNewError, is_current, migrate
from lakeproof.storage.disk import DiskFullError, full_disk
from lakeproof.wording import first_line


def open_database(uri: str) -> Engine:
    """Open the state database, created or migrated if needed."""
    try:
        # A program keeps a connection for days: the server may have restarted since, or have closed an idle one.
        is_server = not uri.startswith("sqlite:")
        engine = create_engine(sqlalchemy_uri(uri), pool_pre_ping=is_server)
        if engine.dialect.name == "sqlite":
            if engine.url.database:
                Path(engine.url.database).parent.mkdir(parents=True, exist_ok=True)
            event.listen(engine, "connect", _prepare_sqlite)
        with engine.connect() as connection:
            if not is_current(connection):
                _refuse_unversioned(connection)
                connection.rollback()  # ends the read transaction
                with connection.begin():
                    migrate(connection)
    except StateTooNewError:
        raise LakeproofError(
            "The landing log's database was created by a newer version of lakeproof.",
            "Use that version or a newer one.",
        ) from None
    except (SQLAlchemyError, OSError) as error:
        raise _full_disk(error, uri) or _unavailable(error) from error
    return engine


def _unavailable(error: Exception) -> UnavailableError:
    text = first_line(error.__cause__ or error)
    return UnavailableError(f"Cannot use the landing log: {text}.", "Check LAKE_LANDING_LOG_URI.")


def check_server(uri: str) -> None:
    """Connect to the server of a state database; nothing is created or migrated."""
    try:
        with create_engine(sqlalchemy_uri(uri)).connect():
            pass
    except SQLAlchemyError as error:
        raise _unavailable(error) from error


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Run a transaction."""
    try:
        with engine.begin() as connection:
            yield connection
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        raise _full_disk(error, str(engine.url)) or UnavailableError(
            f"Cannot use the landing log: {first_line(getattr(error, 'orig', error))}.",
            "Check LAKE_LANDING_LOG_URI, its server and the disk.",
        ) from error


@contextmanager
def forgetting(engine: Engine) -> Iterator[Connection]:
    """Run a transaction; in SQLite, also erase replaced and removed content from the files."""
    is_sqlite = engine.dialect.name == "sqlite"
    with transaction(engine) as connection:
        if is_sqlite:
            connection.exec_driver_sql("PRAGMA secure_delete = ON")
        yield connection
    if is_sqlite:  # the write-ahead log still has the old pages
        with transaction(engine) as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def _refuse_unversioned(connection: Connection) -> None:
    tables = set(inspect(connection).get_table_names())
    if "landed_files" in tables and "state_version" not in tables:
        raise LakeproofError(
            "The landing log's database was created by a development version of lakeproof before 0.1.",
            "Lakes of that version cannot be read. Use a new LAKE_HOME, and land the files there again.",
        )


def _full_disk(error: Exception, uri: str) -> DiskFullError | None:
    path = sqlite_path(uri)
    return full_disk(error, path) if path else None


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    deadline = monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError:  # here SQLite does not wait for the lock, despite the timeout
            if monotonic() > deadline:
                raise
            sleep(0.01)
    cursor.close()
