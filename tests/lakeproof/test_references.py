"""Tags in each catalog and format version: with concurrent writers, and with lost answers."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from sqlalchemy.exc import OperationalError
from tests.lakes import changed
from tests.selection import only_with_all
from tests.servers import PASSWORD, PostgresServer, RestCatalogServer

from lakeproof import references
from lakeproof.catalog import open_catalog
from lakeproof.errors import UnavailableError
from lakeproof.holds import PREFIX, hold, holds_of, release
from lakeproof.references import change_tag, is_sql, newest_metadata, swap_metadata
from lakeproof.settings import Settings

NAME = "gold.things"
ROWS = pa.table({"id": [1, 2]})
HOUR = timedelta(hours=1)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long), only_with_all("rest")])
def catalog(request: pytest.FixtureRequest, lake_settings: Settings) -> Catalog:
    """A catalog with a table of format version 3, which has a snapshot."""
    settings = lake_settings
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        settings = changed(settings, LAKE_CATALOG_URI=server.new_database(PASSWORD))
    elif request.param == "rest":
        start: Callable[..., RestCatalogServer] = request.getfixturevalue("start_rest_catalog")
        rest = start(settings.home / "rest", settings.catalog.warehouse_uri)
        settings = changed(settings, LAKE_CATALOG="rest", LAKE_CATALOG_URI=rest.uri, LAKE_WAREHOUSE=None)
    catalog = open_catalog(settings)
    catalog.create_namespace("gold")
    catalog.create_table(NAME, ROWS.schema).append(ROWS)
    to_format_3(catalog)
    return catalog


def to_format_3(catalog: Catalog) -> None:
    if is_sql(catalog):
        at, metadata = newest_metadata(catalog, NAME)
        assert swap_metadata(catalog, NAME, at, metadata | {"format-version": 3, "next-row-id": 0})
    else:
        upgrade = UpgradeFormatVersionUpdate.model_validate({"format-version": 3})
        catalog.commit_table(catalog.load_table(NAME), (), (upgrade,))
    assert catalog.load_table(NAME).metadata.format_version == 3


def commit(catalog: Catalog, number: int) -> None:
    """Commit as a concurrent writer."""
    at, metadata = newest_metadata(catalog, NAME)
    if is_sql(catalog):
        properties = metadata["properties"] | {"number": str(number)}
        assert swap_metadata(catalog, NAME, at, metadata | {"properties": properties})
    else:
        with catalog.load_table(NAME).transaction() as transaction:
            transaction.set_properties(number=str(number))


def held(catalog: Catalog) -> list[str]:
    return [each.reader for each in holds_of(newest_metadata(catalog, NAME)[1])]


def test_a_table_of_format_3_is_held_and_released(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + HOUR
    found = hold(catalog, NAME, "report", until)
    assert found
    assert found.until == until
    commit(catalog, 1)
    assert hold(catalog, NAME, "other", until)
    assert held(catalog) == ["other", "report"]
    table = catalog.load_table(NAME)
    assert table.metadata.refs[f"{PREFIX}report"].snapshot_id == found.snapshot_id
    assert (table.properties["number"], table.scan().to_arrow().num_rows) == ("1", 2)
    assert release(catalog, NAME, "report")
    assert held(catalog) == ["other"]
    metadata = newest_metadata(catalog, NAME)[1]
    folder = Path(urlsplit(metadata["location"]).path) / "metadata"
    logged = {Path(urlsplit(each["metadata-file"]).path).name for each in metadata["metadata-log"]}
    newest = Path(urlsplit(newest_metadata(catalog, NAME)[0]).path).name
    assert {path.name for path in folder.glob("*.metadata.json")} == logged | {newest}

    check_a_writer_that_is_faster(catalog, monkeypatch)
    check_answers_that_are_lost(catalog, monkeypatch)


def check_a_writer_that_is_faster(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    until, numbers = datetime.now(UTC) + HOUR, iter(range(2, 100))
    real = references.newest_metadata
    busy = 2

    def with_a_writer(own: Catalog, name: str) -> Any:
        nonlocal busy
        found = real(own, name)
        if busy:
            busy -= 1
            commit(catalog, next(numbers))
        return found

    files = metadata_files(catalog)
    with monkeypatch.context() as patched:
        patched.setattr(references, "newest_metadata", with_a_writer)
        assert hold(catalog, NAME, "busy", until)
    assert held(catalog) == ["busy", "other"]
    # A rejected change leaves no file; a server checks only the tag, and rejects nothing.
    assert metadata_files(catalog) == files + (3 if is_sql(catalog) else 2)

    with monkeypatch.context() as patched:
        patched.setattr(references, "_LONGEST_WAIT", 0)
        patched.setattr(references, "swap_metadata", lambda *_: False)
        patched.setattr(references, "_change_on_server", lambda *_: False)
        with pytest.raises(UnavailableError, match=r"Cannot tag gold\.things"):
            release(catalog, NAME, "busy")


def metadata_files(catalog: Catalog) -> int:
    folder = Path(urlsplit(catalog.load_table(NAME).location()).path) / "metadata"
    return len(list(folder.glob("*.metadata.json")))


def check_answers_that_are_lost(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a landed change is found in the table, even after later commits; one that did not land is an error."""
    step, error = (
        ("replace_pointers", OperationalError("commit", {}, Exception("connection reset")))
        if is_sql(catalog)
        else ("_change_on_server", CommitStateUnknownException("502"))
    )
    real: Any = getattr(references, step)

    def lose(*arguments: Any) -> bool:
        real(*arguments)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(references, step, real)
            commit(catalog, 100)
        raise error

    def fail(*_: Any) -> bool:
        raise error

    for replacement in (lose, fail):
        with monkeypatch.context() as patched:
            patched.setattr(references, step, replacement)
            if replacement is lose:
                assert hold(catalog, NAME, "lost", datetime.now(UTC) + HOUR)
                assert release(catalog, NAME, "lost")
            else:
                with pytest.raises(type(error)):
                    hold(catalog, NAME, "never", datetime.now(UTC) + HOUR)
    assert held(catalog) == ["busy", "other"]


def test_metadata_of_format_1_has_no_references_before(lake_settings: Settings) -> None:
    catalog = open_catalog(lake_settings)
    catalog.create_namespace("gold")
    catalog.create_table(NAME, ROWS.schema, properties={"format-version": "1"}).append(ROWS)
    at, metadata = newest_metadata(catalog, NAME)
    metadata.pop("refs")
    assert swap_metadata(catalog, NAME, at, metadata)
    assert hold(catalog, NAME, "report", datetime.now(UTC) + HOUR)
    assert list(newest_metadata(catalog, NAME)[1]["refs"]) == ["main", f"{PREFIX}report"]
    assert change_tag(catalog, NAME, f"{PREFIX}report", lambda _: None) is None
    catalog.load_table(NAME).append(ROWS)
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 4
