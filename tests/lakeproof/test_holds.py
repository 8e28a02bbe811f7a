"""Registered readers: their snapshot stays until the deadline, and the newest writer is never held up by them."""

import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from tests.lakes import variables
from tests.programs import forked

from consumer.layers.rebuild import _mark_replaced
from lakeproof.catalog import open_catalog
from lakeproof.errors import UsageError
from lakeproof.holds import PREFIX, CannotHoldError, hold, holding, holds_of, release
from lakeproof.settings import Settings
from lakeproof.tables.names import REPLACED

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


def newest(catalog: Catalog) -> int:
    snapshot = catalog.load_table(NAME).current_snapshot()
    assert snapshot
    return snapshot.snapshot_id


def held(catalog: Catalog) -> dict[str, tuple[int, datetime]]:
    return {each.name: (each.snapshot_id, each.until) for each in holds_of(catalog.load_table(NAME), NAME)}


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
    time.sleep(0.4)
    assert held(catalog) == {}


def test_a_writer_in_between_makes_it_try_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    load, times = catalog.load_table, 0

    def load_then_append(name: str) -> Table:
        nonlocal times
        table, times = load(name), times + 1
        if times == 1:
            load(name).append(ROWS)
        return table

    monkeypatch.setattr(catalog, "load_table", load_then_append)
    assert hold(catalog, NAME, "reader", datetime.now(UTC) + HOUR)
    assert times > 1
    assert list(held(catalog)) == ["reader"]
    assert catalog.load_table(NAME).scan().to_arrow().num_rows == 4


def test_what_cannot_be_held(catalog: Catalog) -> None:
    catalog.create_table("bronze.empty", ROWS.schema)
    assert hold(catalog, "bronze.empty", "reader", datetime.now(UTC) + HOUR) is None
    assert hold(catalog, NAME, "reader", datetime.now(UTC) + HOUR, snapshot_id=1) is None
    with pytest.raises(UsageError, match="not a name for a reader"):
        hold(catalog, NAME, "a b", datetime.now(UTC) + HOUR)


def test_a_table_that_pyiceberg_cannot_write_is_named(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, lake_settings: Settings
) -> None:
    def cannot_write(*_arguments: object, **_named: object) -> str:
        raise NotImplementedError("Writing V3 is not yet supported")

    with monkeypatch.context() as patched:
        patched.setattr(type(catalog.load_table(NAME).metadata), "model_dump_json", cannot_write)
        with pytest.raises(CannotHoldError, match=r"cannot change bronze\.things: its format version is 3") as error:
            hold(catalog, NAME, "reader", datetime.now(UTC) + HOUR)
        assert f"ALTER TABLE lake.{NAME} CREATE TAG `{PREFIX}NAME`" in error.value.hint
        _mark_replaced(catalog, NAME, "bronze.new")  # a rebuild goes on without the note
    assert held(catalog) == {}
    assert REPLACED not in open_catalog(lake_settings).load_table(NAME).properties


def test_a_long_check_holds_what_it_began_with_and_a_short_one_writes_nothing(
    catalog: Catalog, lake_settings: Settings
) -> None:
    first = newest(catalog)
    before = catalog.load_table(NAME).metadata_location
    with holding(lambda: open_catalog(lake_settings), lambda: ([NAME, "bronze.missing"], HOUR), "check"):
        pass
    assert catalog.load_table(NAME).metadata_location == before
    with holding(
        lambda: open_catalog(lake_settings), lambda: ([NAME, "bronze.missing"], timedelta(seconds=1)), "check"
    ):
        catalog.load_table(NAME).append(ROWS)
        deadline = time.monotonic() + 10
        while not held(catalog):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert held(catalog)["check"][0] == first
    assert f"{PREFIX}check" not in catalog.load_table(NAME).metadata.refs


def test_the_command(catalog: Catalog, lake_settings: Settings, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: str(value) for name, value in variables(lake_settings).items()}
        command = [*forked("lakeproof"), "hold", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)

    assert run().stderr == "No reader holds a snapshot.\n"
    assert f"{NAME}: snapshot {newest(catalog)} held until " in run(NAME, "--as", "report", "--for", "6h").stdout
    assert f"{NAME}: report holds snapshot {newest(catalog)} until " in run().stdout
    assert run(NAME, "--as", "report", "--release").stdout == f"{NAME}: released\n"
    assert held(catalog) == {}
    for arguments, message in {
        (NAME, "--for", "6h"): "--as is missing",
        (NAME, "--as", "report"): "Expected either --for or --until",
        (NAME, "--as", "report", "--for", "6"): "Expected a duration",
        (NAME, "--as", "report", "--until", "2026-11-22"): "--until: expected a time",
        (NAME, "--as", "report", "--until", "2020-11-22T06:00:00Z"): "is in the past",
        ("bronze.none", "--as", "report", "--for", "1d"): "There is no table bronze.none",
        ("none", "--as", "report", "--for", "1d"): "No contract found",
    }.items():
        refused = run(*arguments)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr
