"""Registered readers: their snapshot is kept until the deadline, and they never block the newest writer."""

import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from tests.lakes import variables
from tests.programs import forked
from typer.testing import CliRunner

from lakeproof import references
from lakeproof.catalog import open_catalog
from lakeproof.cli import app
from lakeproof.errors import UsageError
from lakeproof.holds import OF_BACKUP, PREFIX, Reference, held_since, hold, holding, holds_of, named, release
from lakeproof.references import newest_metadata
from lakeproof.settings import Settings

NAME = "bronze.things"
ROWS = pa.table({"id": [1, 2]})
HOUR = timedelta(hours=1)


@pytest.fixture
def catalog(lake_settings: Settings) -> Catalog:
    """A lake with a table of one snapshot."""
    catalog = open_catalog(lake_settings)
    catalog.create_namespace("bronze")
    catalog.create_table(NAME, ROWS.schema).append(ROWS)
    return catalog


def newest(catalog: Catalog, name: str = NAME) -> int:
    snapshot = catalog.load_table(name).current_snapshot()
    assert snapshot
    return snapshot.snapshot_id


def held(catalog: Catalog, name: str = NAME) -> dict[str, tuple[int, datetime | None]]:
    found = holds_of(newest_metadata(catalog, name)[1])
    return {each.reader: (each.snapshot_id, each.until) for each in found}


def test_snapshots_behind_a_hold_are_kept_whatever_the_clock_of_their_writer(catalog: Catalog) -> None:
    assert held_since(newest_metadata(catalog, NAME)[1]) == []
    assert hold(catalog, NAME, "stream", datetime.now(UTC) + HOUR)
    catalog.load_table(NAME).append(ROWS)
    _, metadata = newest_metadata(catalog, NAME)
    first, second = sorted(metadata["snapshots"], key=lambda each: each["sequence-number"])
    assert held_since(metadata) == [datetime.fromtimestamp(first["timestamp-ms"] / 1000, UTC)]
    second["timestamp-ms"] = first["timestamp-ms"] - 30_000  # the clock of this writer is slow
    assert held_since(metadata) == [datetime.fromtimestamp(second["timestamp-ms"] / 1000, UTC)]


def test_a_reader_keeps_its_snapshot_when_the_deadline_is_extended(catalog: Catalog) -> None:
    first, until = newest(catalog), datetime.now(UTC).replace(microsecond=0) + HOUR
    assert hold(catalog, NAME, "nightly-report", until)
    catalog.load_table(NAME).append(ROWS)
    assert hold(catalog, NAME, "nightly-report", until + HOUR)
    assert hold(catalog, NAME, "other", until)
    assert hold(catalog, NAME, "stream", until, oldest=True)
    assert held(catalog) == {
        "nightly-report": (first, until + HOUR),
        "other": (newest(catalog), until),
        "stream": (first, until),
    }
    assert release(catalog, NAME, "stream")
    table = catalog.load_table(NAME)
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC).replace(tzinfo=None) + HOUR).commit()
    assert first in {each.snapshot_id for each in catalog.load_table(NAME).snapshots()}
    assert release(catalog, NAME, "nightly-report")
    assert not release(catalog, NAME, "nightly-report")
    assert list(held(catalog)) == ["other"]


def test_a_deadline_that_has_passed_holds_nothing(catalog: Catalog) -> None:
    hold(catalog, NAME, "late", datetime.now(UTC) + timedelta(milliseconds=300))
    assert f"{PREFIX}late" in catalog.load_table(NAME).metadata.refs
    time.sleep(0.4)
    assert held(catalog) == {}


@pytest.mark.parametrize("oldest", [False, True])
def test_a_hold_that_has_passed_begins_anew(catalog: Catalog, *, oldest: bool) -> None:
    """Nobody has expired snapshots meanwhile, so its tag is still there."""
    first = newest(catalog)
    catalog.load_table(NAME).append(ROWS)
    hold(catalog, NAME, "nightly-report", datetime.now(UTC) + timedelta(milliseconds=300), oldest=not oldest)
    time.sleep(0.4)
    again = hold(catalog, NAME, "nightly-report", datetime.now(UTC) + HOUR, oldest=oldest)
    assert again
    assert again.snapshot_id == (first if oldest else newest(catalog))


def test_what_cannot_be_held(catalog: Catalog) -> None:
    catalog.create_table("bronze.empty", ROWS.schema)
    assert hold(catalog, "bronze.empty", "reader", datetime.now(UTC) + HOUR) is None
    assert hold(catalog, NAME, "reader", datetime.now(UTC) + HOUR, snapshot_id=1) is None
    with pytest.raises(UsageError, match="not a name for a reader"):
        hold(catalog, NAME, "a b", datetime.now(UTC) + HOUR)


def test_two_readers_of_one_name_have_the_later_deadline(catalog: Catalog) -> None:
    first, until = newest(catalog), datetime.now(UTC).replace(microsecond=0) + 2 * HOUR
    assert hold(catalog, NAME, "report", until)
    catalog.load_table(NAME).append(ROWS)
    again = hold(catalog, NAME, "report", until - HOUR)
    assert again
    assert (again.snapshot_id, again.until) == (first, until)
    assert held(catalog) == {"report": (first, until)}


def test_a_clock_that_was_set_back_is_reported_and_the_table_can_still_be_read(catalog: Catalog) -> None:
    # Iceberg cannot read a table with a tag of negative age.
    with pytest.raises(UsageError, match="Expected a deadline after the snapshot's time") as error:
        hold(catalog, NAME, "report", datetime.now(UTC) - 24 * HOUR)
    assert "clocks" in error.value.hint
    assert list(catalog.load_table(NAME).metadata.refs) == ["main"]


def test_a_table_that_is_renamed_or_dropped_while_it_is_held(catalog: Catalog) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + HOUR
    assert hold(catalog, NAME, "report", until)
    catalog.rename_table(NAME, "bronze.renamed")
    assert hold(catalog, NAME, "report", until) is None
    assert not release(catalog, NAME, "report")
    assert held(catalog, "bronze.renamed") == {"report": (newest(catalog, "bronze.renamed"), until)}
    catalog.drop_table("bronze.renamed")
    assert not release(catalog, "bronze.renamed", "report")


def test_what_is_expired_meanwhile_is_not_held(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    first, swap = newest(catalog), references.swap_metadata
    catalog.load_table(NAME).append(ROWS)

    def expire_first(*arguments: Any) -> bool:
        table = catalog.load_table(NAME)
        if first in {each.snapshot_id for each in table.snapshots()}:
            table.maintenance.expire_snapshots().by_id(first).commit()
        return swap(*arguments)

    monkeypatch.setattr(references, "swap_metadata", expire_first)
    assert hold(catalog, NAME, "report", datetime.now(UTC) + HOUR, first) is None
    found = hold(catalog, NAME, "stream", datetime.now(UTC) + HOUR, oldest=True)
    assert found
    assert found.snapshot_id == newest(catalog)


def test_backups_are_named_in_one_line() -> None:
    at = datetime(2026, 11, 25, tzinfo=UTC)
    backups = [Reference(f"{OF_BACKUP}{number}", False, 1, at, at + number * HOUR) for number in (3, 2)]
    found = [*backups, Reference("audit", False, 1, at), Reference(f"{PREFIX}report", False, 1, at, at + HOUR)]
    assert named(found) == [
        "tag audit",
        "reader report until 2026-11-25 01:00 UTC",
        "2 backups until 2026-11-25 03:00 UTC",
    ]


def tagged_by_check(catalog: Catalog) -> int:
    """Wait for the tag of a check; its deadline of less than a second may have passed already."""
    deadline = time.monotonic() + 120
    while not (tag := catalog.load_table(NAME).metadata.refs.get(f"{PREFIX}check")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return tag.snapshot_id


def test_a_long_check_holds_what_it_began_with_and_a_short_one_writes_nothing(
    catalog: Catalog, lake_settings: Settings
) -> None:
    first = newest(catalog)
    before = catalog.load_table(NAME).metadata_location
    with holding(lambda: open_catalog(lake_settings), lambda: ([NAME, "bronze.missing"], HOUR), "check"):
        pass
    assert catalog.load_table(NAME).metadata_location == before
    appended = Event()

    def tables() -> tuple[list[str], timedelta]:
        appended.wait()  # a tag that is set meanwhile would make the append fail
        return [NAME, "bronze.missing"], timedelta(seconds=1)

    with holding(lambda: open_catalog(lake_settings), tables, "check"):
        try:
            catalog.load_table(NAME).append(ROWS)
        finally:
            appended.set()
        assert tagged_by_check(catalog) == first
    assert f"{PREFIX}check" not in catalog.load_table(NAME).metadata.refs


def test_a_check_holds_its_snapshots_after_an_outage_of_the_catalog(catalog: Catalog, lake_settings: Settings) -> None:
    first, outages = newest(catalog), [OSError("away"), OSError("away")]

    def open_it() -> Catalog:
        if outages:
            raise outages.pop()
        return open_catalog(lake_settings)

    with holding(open_it, lambda: ([NAME], timedelta(milliseconds=400)), "check"):
        assert tagged_by_check(catalog) == first
    assert not outages


def test_the_command(catalog: Catalog, lake_settings: Settings, tmp_path: Path) -> None:
    environment = {name: str(value) for name, value in variables(lake_settings).items()}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*forked("lakeproof"), "hold", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)

    assert run().stderr == "No reader holds a snapshot.\n"
    assert f"{NAME}: snapshot {newest(catalog)} held until " in run(NAME, "--as", "report", "--for", "6h").stdout
    assert f"{NAME}: report holds snapshot {newest(catalog)} until " in run().stdout
    assert run(NAME, "--as", "report", "--release").stdout == f"{NAME}: released\n"
    assert held(catalog) == {}
    catalog.create_table("bronze.empty", ROWS.schema)
    assert run("bronze.empty", "--as", "report", "--for", "6h").stdout == "bronze.empty: has no snapshot yet\n"
    for arguments, message in {
        (NAME, "--for", "6h"): "--as is missing",
        (NAME, "--as", "report"): "Expected either --for or --until",
        (NAME, "--as", "report", "--for", "6h", "--release"): "--release cannot be used with --for",
        (NAME, "--as", "reprot", "--release"): f"reprot holds no snapshot of {NAME}.",
        (NAME, "--as", "report", "--for", "6"): "Expected a duration",
        (NAME, "--as", "report", "--until", "2026-11-22"): "--until: expected a time",
        (NAME, "--as", "report", "--until", "2020-11-22T06:00:00Z"): "is in the past",
        ("bronze.none", "--as", "report", "--for", "1d"): "There is no table bronze.none",
        ("none", "--as", "report", "--for", "1d"): "No contract found",
    }.items():
        refused = CliRunner().invoke(app, ["hold", *arguments], env=environment)
        said = str(refused.exception) if isinstance(refused.exception, UsageError) else refused.output
        assert message in said, said
        assert isinstance(refused.exception, UsageError) or refused.exit_code == UsageError.exit_code
