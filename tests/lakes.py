"""The same lake with other settings, and as it was before."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from lakeproof.settings import CONCERNS, VARIABLES, Settings, settings_of


def variables(settings: Settings) -> dict[str, Any]:
    """What was set, by the names of its variables."""
    parts = [getattr(settings, name) if name else settings for name in CONCERNS]
    return {
        field.alias: getattr(part, name)
        for part in parts
        for name, field in type(part).model_fields.items()
        if field.alias and name in part.model_fields_set
    }


def changed(settings: Settings, **changes: Any) -> Settings:
    """Settings with other values of variables; None unsets one. What follows from another one follows from the new."""
    assert changes.keys() <= VARIABLES
    return settings_of(variables(settings) | changes)


@contextmanager
def put_back(settings: Settings) -> Iterator[None]:
    """Undo what is done meanwhile to the tables of an embedded lake, whose files are never changed or removed."""
    databases = sorted(settings.home.glob("*.db"))
    assert databases
    copies = [_copied(sqlite3.connect(path), sqlite3.connect(":memory:")) for path in databases]
    try:
        yield
    finally:
        for path, copy in zip(databases, copies, strict=True):
            _copied(copy, sqlite3.connect(path)).close()


def _copied(source: sqlite3.Connection, target: sqlite3.Connection) -> sqlite3.Connection:
    with closing(source):
        source.backup(target)
    return target
