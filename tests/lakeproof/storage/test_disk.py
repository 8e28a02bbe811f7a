"""The error of a full disk names the disk, whichever library raises it."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text

from lakeproof.errors import LakeproofError
from lakeproof.state.database import open_database, transaction
from lakeproof.storage.disk import DiskFullError, full_disk


def test_a_file_names_its_disk(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught, Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")
    named = OSError(errno.EDQUOT, "Disk quota exceeded", "/dev/shm/none/file")
    for error, place in ((caught.value, tmp_path), (named, Path("/dev/shm/none/file"))):
        found = full_disk(error, tmp_path)
        assert found
        assert found.exit_code == 3
        assert str(place) in found.message
    assert found.message.startswith("No space is left on the disk /dev/shm, which has")


def test_the_fullest_disk_is_the_one_where_none_is_named() -> None:
    places = [Path("/dev/shm/a"), Path("/proc/self")]  # /proc has no space
    found = full_disk(RuntimeError("java.io.IOException: No space left on device"), *places)
    assert found
    assert found.message == "No space is left on the disk /proc, which has /proc/self."


def test_a_full_sqlite_database(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    engine = open_database(f"sqlite:///{path}")

    def fill() -> None:
        with transaction(engine) as connection:
            connection.execute(text("PRAGMA max_page_count=1"))
            connection.execute(text("CREATE TABLE large (content)"))
            connection.execute(text("INSERT INTO large VALUES (zeroblob(1000000))"))

    with pytest.raises(DiskFullError, match=str(path)):
        fill()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, os.strerror(errno.EACCES), "/proc/self"),
        sqlite3.OperationalError("database is locked"),
        RuntimeError("org.postgresql.util.PSQLException: could not extend file: No space left on device"),
    ],
)
def test_what_is_no_full_disk_here(error: Exception) -> None:
    assert full_disk(error, Path("/proc/self")) is None


def test_what_an_error_was_caused_by() -> None:
    error = LakeproofError("It failed.")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/proc/self/x")
    found = full_disk(error)
    assert found
    assert "/proc" in found.message
