"""The settings of a lake, changed settings, and a lake that is restored after a test."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from lakeproof.settings import GROUPS, VARIABLES, Settings, settings_of
from lakeproof.state.database import open_database

ROOT = Path(__file__).parents[1]


def embedded(home: Path) -> Settings:
    """Return the settings of an embedded lake with the contracts of the repository."""
    jars = ROOT / "target" / "jars" / "spark"
    return settings_of({"LAKE_HOME": home, "LAKE_CONTRACTS": ROOT / "contracts", "LAKE_JARS": jars})


def variables(settings: Settings) -> dict[str, Any]:
    """Return the settings by the names of their variables."""
    parts = [getattr(settings, name) if name else settings for name in GROUPS]
    return {
        field.alias: getattr(part, name)
        for part in parts
        for name, field in type(part).model_fields.items()
        if field.alias and name in part.model_fields_set
    }


def changed(settings: Settings, **changes: Any) -> Settings:
    """Return settings with changed variables; None unsets one. Values derived from a variable follow the change."""
    assert changes.keys() <= VARIABLES
    return settings_of(variables(settings) | changes)


@contextmanager
def put_back(settings: Settings) -> Iterator[None]:
    """Undo changes made to an embedded lake's tables in the context; their files are never changed or removed."""
    databases = sorted(settings.home.glob("*.db"))
    assert databases
    copies = [_copied(sqlite3.connect(path), sqlite3.connect(":memory:")) for path in databases]
    try:
        yield
    finally:
        for path, copy in zip(databases, copies, strict=True):
            _copied(copy, sqlite3.connect(path)).close()


@contextmanager
def undone(settings: Settings) -> Iterator[None]:
    """Undo changes to an embedded lake in the context: of its databases, and folders and files beside its warehouse."""
    open_database(settings.state.database).dispose()  # `put_back` puts back databases that exist
    before = {*settings.home.iterdir()}
    try:
        with put_back(settings):
            yield
    finally:
        for path in {*settings.home.iterdir()} - before:
            if path.is_dir():
                shutil.rmtree(path)
            elif not path.name.endswith(("-wal", "-shm")):  # of a database that is still open
                path.unlink()


def _copied(source: sqlite3.Connection, target: sqlite3.Connection) -> sqlite3.Connection:
    with closing(source):
        source.backup(target)
    return target
