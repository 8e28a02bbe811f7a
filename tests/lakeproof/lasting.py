"""A lake that is filled once for the tests of a module; what a test changes is undone."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT
from tests.lakes import put_back

from lakeproof.settings import Settings, settings_of
from lakeproof.state.database import open_database


def embedded(folder: Path) -> Settings:
    """Return the settings of an embedded lake in a folder. Its state database exists."""
    settings = settings_of(
        {
            "LAKE_HOME": folder / "lake",
            "LAKE_CONTRACTS": ROOT / "contracts",
            "LAKE_JARS": ROOT / "target" / "jars" / "spark",
        }
    )
    open_database(settings.state.database).dispose()
    return settings


@contextmanager
def undone(settings: Settings) -> Iterator[None]:
    """Undo changes to the lake in the context: of its databases, and folders and files beside its warehouse."""
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
