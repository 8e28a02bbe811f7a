"""Backup and restore of small tables on every catalog, and changes by operators, other tools and time."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import pyarrow
from pyiceberg.table import Table
from pyiceberg.types import StringType
from sqlalchemy.exc import OperationalError
from tests.lakes import changed, embedded, undone, variables
from tests.selection import first_by_default
from tests.servers import PASSWORD, PostgresServer, RestCatalogServer
from typer.testing import CliRunner

from lakeproof import references
from lakeproof.backup import catalogs, checks, take
from lakeproof.backup import restore as restoring
from lakeproof.backup.catalogs import Tables
from lakeproof.backup.checks import lost_files, lost_offsets, past_ranges, replayed_since
from lakeproof.backup.manifest import MANIFEST, Folder, SavedTable, digest, folder_at
from lakeproof.backup.restore import RestorePlan, plan_restore, restore
from lakeproof.backup.take import back_up
from lakeproof.catalog import open_catalog
from lakeproof.cli import app
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.history.apply import adopt, carry_out, plan
from lakeproof.kafka.offsets import source_name
from lakeproof.kafka.topic import Extent
from lakeproof.landing.root import archives_of, record_archive
from lakeproof.references import newest_metadata, parsed, swap_metadata
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog, QueryKind
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.database import open_database, transaction
from lakeproof.state.given_up import give_up_before
from lakeproof.state.landing_log import LandingLog
from lakeproof.state.lease import LeaseHeldError, lease
from lakeproof.state.proofs import Proof, ProofKind, ProofOutcome, ProvenFile, last_clean, record
from lakeproof.state.sink_positions import SinkPosition, SinkPositions
from lakeproof.storage import StoredFile, open_storage

ROW = pa.schema([("n", pa.int64())])
SOURCE = pa.schema([("source", pa.string())])
WEEK = timedelta(days=7)
EXAMPLE = {"source": "a.json", "position": 0, "raw": "wanda"}
TABLES = {
    "bronze.events": "bronze-events",
    "dead_letters.events": "bronze-events",
    "ledger.events": "bronze-events",
    "silver.events": "silver-events",
    "gold.answers": "gold-answers",
}


def on_rest(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    start: Callable[..., RestCatalogServer] = request.getfixturevalue("start_rest_catalog")
    server = start(settings.home / "rest", settings.catalog.warehouse_uri)
    return changed(settings, LAKE_CATALOG="rest", LAKE_CATALOG_URI=server.uri, LAKE_WAREHOUSE=None)


def on_postgres(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    server: PostgresServer = request.getfixturevalue("postgres")
    uri = server.new_database(PASSWORD)
    return changed(settings, LAKE_CATALOG_URI=uri, LAKE_LANDING_LOG_URI=uri)


def on_s3(request: pytest.FixtureRequest, _: Settings) -> Settings:
    settings: Settings = request.getfixturevalue("s3_lake_settings")
    return settings


@pytest.fixture(scope="module")
def lasting_lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return filled(embedded(tmp_path_factory.mktemp("backup") / "lake"))


@pytest.fixture
def lake(lasting_lake: Settings) -> Iterator[Settings]:
    """An embedded lake with a table of each layer."""
    with undone(lasting_lake):
        yield lasting_lake


@pytest.fixture
def any_lake(request: pytest.FixtureRequest) -> Settings:
    """A lake with a table of each layer, on each catalog."""
    if request.param == "sqlite":
        found: Settings = request.getfixturevalue("lake")
        return found
    make = {"postgres": on_postgres, "rest": on_rest, "s3": on_s3}[request.param]
    return filled(make(request, request.getfixturevalue("lake_settings")))


def filled(settings: Settings) -> Settings:
    catalog = open_catalog(settings)
    for name in TABLES:
        catalog.create_namespace_if_not_exists(name.partition(".")[0])
        catalog.create_table(name, SOURCE if name == "ledger.events" else ROW)
    commit(settings, 1)
    return settings


def commit(settings: Settings, number: int, *names: str) -> None:
    """Commit a row and a marker to the named tables, by default to all."""
    catalog = open_catalog(settings)
    for name in names or TABLES:
        append(catalog.load_table(name), number, TABLES.get(name))


def append(table: Table, number: int, query: str | None = None, follows: str = "") -> None:
    is_ledger = table.name()[0] == "ledger"
    rows = pa.table({"source": [f"{number}.json"]}, SOURCE) if is_ledger else pa.table({"n": [number]}, ROW)
    with table.transaction() as transaction:
        transaction.append(rows)
        if query:
            transaction.set_properties(marker(number, query, follows))


def marker(number: int, query: str, follows: str = "") -> dict[str, str]:
    found = {"marker": {"checkpoint_id": follows, "end": str(number)}}
    return {f"lakeproof.marker.{query}": json.dumps(found)}


def numbers(settings: Settings, name: str) -> list[int]:
    found: list[int] = open_catalog(settings).load_table(name).scan().to_arrow()["n"].to_pylist()
    return sorted(found)


def marker_of(settings: Settings, name: str) -> str:
    text = open_catalog(settings).load_table(name).properties[f"lakeproof.marker.{TABLES[name]}"]
    return str(json.loads(text)["marker"]["end"])


def taken(settings: Settings, keep: timedelta = WEEK) -> Folder:
    return back_up(settings, folder_at(settings, None), keep)[1]


def actions(plan: RestorePlan) -> dict[str, str]:
    return {each.name: each.action for each in plan.tables}


def pointers(settings: Settings) -> dict[str, str]:
    return Tables(settings).pointers()


def land(settings: Settings, *names: str) -> None:
    for name in names:
        storage = open_storage(settings.landing.uri, settings.s3)
        storage.replace(f"{settings.landing.uri}/events/{name}", b"[]")


def on(*kinds: str) -> pytest.MarkDecorator:
    """Run a test on the first kind of lake, with ``ALL=1`` on the other kinds, and on the rest on demand."""
    every = ("sqlite", "postgres", "rest", "s3")
    when = {kind: pytest.mark.all if kind in kinds else pytest.mark.long for kind in every}
    marks = {kind: [when[kind]] * (kind != kinds[0]) + [pytest.mark.s3] * (kind == "s3") for kind in every}
    return pytest.mark.parametrize("any_lake", [pytest.param(kind, marks=marks[kind]) for kind in every], indirect=True)


@on("sqlite")
def test_a_table_without_rows_is_unchanged(any_lake: Settings) -> None:
    open_catalog(any_lake).create_table("silver.empty", ROW)
    done = restore(any_lake, taken(any_lake))
    assert set(actions(done).values()) == {"unchanged"}
    assert done.way_back is None


@on("sqlite", "rest", "s3")
def test_every_table_goes_back_and_forth(any_lake: Settings) -> None:
    land(any_lake, "2.json", "3.json")
    first = taken(any_lake)
    assert set(actions(plan_restore(any_lake, first)).values()) == {"unchanged"}
    commit(any_lake, 2)
    catalog = open_catalog(any_lake)
    with catalog.load_table("silver.events").update_schema() as update:
        update.add_column("later", StringType())
    with catalog.load_table("bronze.events").transaction() as transaction:
        transaction.set_properties({"later": "yes"})
    second = taken(any_lake)
    commit(any_lake, 3)

    done = restore(any_lake, first)
    assert set(actions(done).values()) == {"put back"}
    for name in set(TABLES) - {"ledger.events"}:
        assert (numbers(any_lake, name), marker_of(any_lake, name)) == ([1], "1"), name
    assert catalog.load_table("silver.events").schema().column_names == ["n"]
    assert "later" not in catalog.load_table("bronze.events").properties
    assert set(actions(restore(any_lake, first)).values()) == {"unchanged"}
    assert restore(any_lake, first).way_back is None

    restore(any_lake, second)  # a newer backup, whose snapshots the tables still have
    assert numbers(any_lake, "silver.events") == [1, 2]
    assert catalog.load_table("silver.events").schema().column_names == ["n", "later"]
    assert done.way_back
    restore(any_lake, folder_at(any_lake, done.way_back))
    assert numbers(any_lake, "silver.events") == [1, 2, 3]
    commit(any_lake, 4)
    assert numbers(any_lake, "gold.answers") == [1, 2, 3, 4]


@on("sqlite")
def test_a_lost_catalog_is_registered_again(any_lake: Settings) -> None:
    folder = taken(any_lake)
    commit(any_lake, 2)
    catalog = open_catalog(any_lake)
    for name in TABLES:
        catalog.drop_table(name)
    done = restore(any_lake, folder)
    assert set(actions(done).values()) == {"registered again"}
    assert done.unknown == ["events"]
    assert numbers(any_lake, "bronze.events") == [1]
    table = catalog.load_table("bronze.events")
    assert folder.manifest().tag in table.refs()
    commit(any_lake, 3)
    assert numbers(any_lake, "bronze.events") == [1, 3]


@pytest.mark.all
def test_a_table_that_was_upgraded_and_dropped_comes_back_in_its_format(lake: Settings) -> None:
    folder, catalog, name = taken(lake), open_catalog(lake), "bronze.events"
    land(lake, "2.json", "3.json", "4.json")
    commit(lake, 2)
    commit(lake, 3)
    at, metadata = newest_metadata(catalog, name)
    assert swap_metadata(catalog, name, at, metadata | {"format-version": 3, "next-row-id": 0})
    upgraded = taken(lake)
    planned = plan_restore(lake, folder)
    assert (set(actions(planned).values()), planned.missing, planned.lost) == ({"put back"}, {}, {})
    catalog.drop_table(name)
    restore(lake, folder)
    assert catalog.load_table(name).format_version == 2
    commit(lake, 4)
    assert numbers(lake, name) == [1, 4]

    restore(lake, upgraded)
    back = catalog.load_table(name).metadata
    assert (back.format_version, numbers(lake, name)) == (3, [1, 2, 3])
    # Iceberg's Java library does not read snapshots with later sequence numbers than the last one.
    assert back.last_sequence_number == max(each.sequence_number or 0 for each in back.snapshots)


@pytest.mark.all
@on("rest")
def test_a_table_that_was_replaced_comes_back(any_lake: Settings) -> None:
    folder = taken(any_lake)
    catalog = open_catalog(any_lake)
    before = catalog.load_table("silver.events").metadata.table_uuid
    catalog.drop_table("silver.events")
    append(catalog.create_table("silver.events", ROW, location=f"{any_lake.catalog.warehouse_uri}/other"), 7)
    done = restore(any_lake, folder)
    assert actions(done)["silver.events"] == "replaced by the one of the backup"
    assert catalog.load_table("silver.events").metadata.table_uuid == before
    assert numbers(any_lake, "silver.events") == [1]
    assert done.way_back
    restore(any_lake, folder_at(any_lake, done.way_back))
    assert numbers(any_lake, "silver.events") == [7]


@on("sqlite")
def test_writers_go_on_during_backups(any_lake: Settings) -> None:
    ended, written, errors = threading.Event(), [1], []

    def write() -> None:
        number = 1
        while not ended.is_set():
            number += 1
            for name in ("bronze.events", "dead_letters.events", "ledger.events", "silver.events", "gold.answers"):
                for _ in range(50):
                    try:
                        append(open_catalog(any_lake).load_table(name), number, TABLES[name])
                        break
                    except CommitFailedException:
                        continue
                    except Exception as error:  # noqa: BLE001 - for the test to show
                        errors.append(error)
                        return
            written.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    made = []
    for _ in range(3):
        made.append(back_up(any_lake, folder_at(any_lake, None), WEEK))
        before = len(written)
        while len(written) == before and writer.is_alive():
            time.sleep(0.01)
    ended.set()
    writer.join()
    assert not errors
    for name in set(TABLES) - {"ledger.events"}:
        assert numbers(any_lake, name) == written, name
    for manifest, _ in made:
        ends = {each.name: int(next(iter(each.markers.values()))) for each in manifest.tables}
        # No table is ahead of its source, and the last one of a stream is at most one behind.
        assert ends["gold.answers"] <= ends["silver.events"] <= ends["ledger.events"]
        assert (
            ends["ledger.events"] <= ends["dead_letters.events"] <= ends["bronze.events"] <= ends["ledger.events"] + 1
        )
    land(any_lake, *(f"{number}.json" for number in written))
    assert len(written) > 3
    restore(any_lake, made[0][1])
    assert numbers(any_lake, "gold.answers") == list(range(1, ends_of(made[0][0])["gold.answers"] + 1))


@pytest.mark.all
def test_tables_of_a_server_fit_together_while_they_change(
    request: pytest.FixtureRequest, lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(on_rest(request, lake_settings))
    real, looks, number, every = catalogs.table_or_none, 0, 1, 7
    opened = [open_catalog(lake).load_table(name) for name in TABLES]

    def look(catalog: Catalog, name: str) -> Table | None:
        nonlocal looks, number
        looks += 1
        if looks % every == 0:  # two reads of the three tables of bronze make six
            number += 1
            for table in opened:
                with table.transaction() as transaction:
                    transaction.set_properties(marker(number, TABLES[".".join(table.name())]))
        return real(catalog, name)

    monkeypatch.setattr(catalogs, "table_or_none", look)
    tables = Tables(lake)
    for moments in (7, 8, 9, 10, 11):
        every = moments
        found = {name: parsed(tables.read(at)) for name, at in tables.pointers().items()}
        markers = {name: found[name]["properties"][f"lakeproof.marker.{query}"] for name, query in TABLES.items()}
        ends = {name: int(json.loads(text)["marker"]["end"]) for name, text in markers.items()}
        assert ends["gold.answers"] <= ends["silver.events"] <= ends["bronze.events"]
        assert ends["bronze.events"] == ends["dead_letters.events"] == ends["ledger.events"]
    assert number > 4


def ends_of(manifest: Any) -> dict[str, int]:
    return {each.name: int(next(iter(each.markers.values()))) for each in manifest.tables}


def test_a_tag_of_an_old_snapshot_lasts_as_long_as_it_says(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    # Iceberg counts the age from the snapshot's time.
    month = timedelta(days=30)
    later = datetime.now(UTC).replace(microsecond=0) + month
    monkeypatch.setattr(take, "now", lambda: later)
    made, _ = back_up(lake, folder_at(lake, None), WEEK)
    for name in TABLES:
        table = open_catalog(lake).load_table(name)
        snapshot, tag = table.current_snapshot(), table.refs()[made.tag]
        assert snapshot is not None
        assert tag.max_ref_age_ms is not None
        assert snapshot.timestamp_ms + tag.max_ref_age_ms == int((later + WEEK).timestamp() * 1000)


def test_a_table_without_rows(lake: Settings) -> None:
    catalog = open_catalog(lake)
    catalog.create_table("gold.empty", ROW)
    folder = taken(lake)
    append(catalog.load_table("gold.empty"), 1)
    assert actions(restore(lake, folder))["gold.empty"] == "put back"
    assert numbers(lake, "gold.empty") == []
    append(catalog.load_table("gold.empty"), 2)
    assert numbers(lake, "gold.empty") == [2]


def test_tables_that_came_later(lake: Settings) -> None:
    folder, catalog = taken(lake), open_catalog(lake)
    silver = str(catalog.load_table("silver.events").metadata.table_uuid)
    for name, query, follows in (
        ("dead_letters.events_attempts", "bronze-events", ""),
        ("gold.later", "gold-later", silver),
        ("silver.events__rebuild_1", "silver-events", ""),
        ("bronze.other", "bronze-other", ""),
        ("ledger.other", "bronze-other", ""),
        ("ledger.other_removals", "removals-other", ""),
        ("ledger.events_removals", "removals-events", ""),
        ("silver.other", "silver-other", ""),
    ):
        append(catalog.create_table(name, SOURCE if name.startswith("ledger.") else ROW), 5, query, follows)
    other = str(catalog.load_table("silver.other").metadata.table_uuid)
    append(catalog.create_table("gold.of_other", ROW), 5, "gold-of_other", other)
    append(catalog.create_table("gold.of_users", ROW), 5)
    files = sorted((lake.home / "warehouse").rglob("*.parquet"))
    positions = SinkPositions(lake.state.database)
    for table in ("silver.events", "silver.other"):
        positions.record(f"{table}-to-t", table, SinkPosition("id", "topic", "{}"), None)
    for stream in ("events", "other"):
        log = LandingLog(lake.state.database, stream)
        log.append([("later.json", StoredFile("file:///later.json", 1, "e", datetime.now(UTC)))])
    found = actions(restore(lake, folder))
    dropped = {"dead_letters.events_attempts", "gold.later", "silver.events__rebuild_1", "ledger.events_removals"}
    assert {name for name, action in found.items() if action.startswith("dropped")} == dropped
    of_other = {"bronze.other", "ledger.other", "ledger.other_removals", "silver.other"}
    kept = of_other | {"gold.of_other", "gold.of_users"}
    assert {name for name, action in found.items() if action.startswith("kept")} == kept
    assert set(pointers(lake)) == TABLES.keys() | kept
    assert sorted((lake.home / "warehouse").rglob("*.parquet")) == files
    assert positions.get("silver.events-to-t") is None
    assert positions.sinks_of("silver.events") == ["silver.events-to-t"]  # an erasure searches the topic
    assert positions.get("silver.other-to-t") is not None
    assert not LandingLog(lake.state.database, "events").known_among(["later.json"])
    assert LandingLog(lake.state.database, "other").known_among(["later.json"])


def test_what_is_missing_is_found_before_anything_is_changed(lake: Settings) -> None:
    folder = taken(lake)
    commit(lake, 2)
    land(lake, "2.json")
    before = pointers(lake)
    [path] = [
        Path(task.file.file_path.removeprefix("file://"))
        for task in open_catalog(lake).load_table("silver.events").scan("n = 1").plan_files()
    ]
    kept = path.rename(path.with_suffix(".away"))
    plan = plan_restore(lake, folder)
    assert plan.missing == {"silver.events": [f"file://{path}"]}
    with pytest.raises(LakeproofError, match=r"1 file of silver\.events is gone"):
        restore(lake, folder)
    assert pointers(lake) == before
    kept.rename(path)
    restore(lake, folder)
    assert numbers(lake, "silver.events") == [1]


def test_landed_files_that_were_removed_since_are_not_lost_silently(lake: Settings) -> None:
    folder = taken(lake)
    commit(lake, 2)
    land(lake, "1.json")
    before = pointers(lake)
    assert plan_restore(lake, folder).lost == {"events": ["2.json"]}
    with pytest.raises(LakeproofError, match=r"for events: 2\.json") as refused:
        restore(lake, folder)
    assert "archive" in refused.value.hint
    assert pointers(lake) == before
    land(lake, "2.json")  # restored from the archive
    assert plan_restore(lake, folder).lost == {}
    (lake.home / "landing" / "events" / "2.json").unlink()
    restore(lake, folder, accept_loss=True)
    assert numbers(lake, "bronze.events") == [1]


def test_an_unmounted_landing_zone_is_not_taken_for_a_loss(lake: Settings) -> None:
    folder = taken(lake)
    commit(lake, 2)
    with pytest.raises(UnavailableError, match="landing folder"):
        restore(lake, folder)


def test_consumers_that_run_are_named(lake: Settings) -> None:
    folder = taken(lake)
    with lease(lake.state.database, "sink.gold.answers-to-t"), lease(lake.state.database, "alerts.x"):
        assert plan_restore(lake, folder).running == ["sink.gold.answers-to-t"]
        with pytest.raises(LeaseHeldError, match=r"sink\.gold\.answers-to-t"):
            restore(lake, folder)
    assert plan_restore(lake, folder).running == []


@contextmanager
def failing(patch: pytest.MonkeyPatch, owner: Any, name: str) -> Iterator[None]:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with patch.context() as inner:
        inner.setattr(owner, name, fail)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize("step", first_by_default(["replace", "put_back_sinks", "put_back_rows", "remove_checkpoint"]))
@on("sqlite")
def test_a_restore_that_is_killed_is_repeated(any_lake: Settings, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    land(any_lake, "2.json")
    folder = taken(any_lake)
    commit(any_lake, 2)
    LandingLog(any_lake.state.database, "events").append(
        [("later.json", StoredFile("file:///later.json", 1, "e", datetime.now(UTC)))]
    )
    owner = Tables if step == "replace" else restoring
    with failing(monkeypatch, owner, step):
        restore(any_lake, folder)
    restore(any_lake, folder)
    assert numbers(any_lake, "bronze.events") == [1]
    assert numbers(any_lake, "gold.answers") == [1]
    assert not LandingLog(any_lake.state.database, "events").known_among(["later.json"])


@pytest.mark.all
def test_a_restore_that_is_killed_between_two_tables_of_a_server(
    request: pytest.FixtureRequest, lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = filled(on_rest(request, lake_settings))
    folder, catalog = taken(lake), open_catalog(lake)
    real: Any = catalogs._replace_on_server
    for fails_at in ("dead_letters.events", "silver.events", "gold.answers"):
        commit(lake, 2, "bronze.events", "dead_letters.events", "gold.answers")
        catalog.drop_table("silver.events")
        location = f"{lake.catalog.warehouse_uri}/before-{fails_at}"
        append(catalog.create_table("silver.events", ROW, location=location), 7)

        def some(tables: Tables, change: Any, before: str, fails_at: str = fails_at) -> None:
            if change.name == fails_at:
                raise KeyboardInterrupt
            real(tables, change, before)

        with monkeypatch.context() as patch:
            patch.setattr(catalogs, "_replace_on_server", some)
            with pytest.raises(KeyboardInterrupt):
                restore(lake, folder)
        restore(lake, folder)
        for name in ("bronze.events", "dead_letters.events", "silver.events", "gold.answers"):
            assert numbers(lake, name) == [1], name


@pytest.mark.all
def test_sinks_are_saved_before_tables_and_the_landing_log_after(
    lake: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = take._tagged
    positions, log = SinkPositions(lake.state.database), LandingLog(lake.state.database, "events")

    def slow(*arguments: Any) -> Any:
        found = real(*arguments)
        commit(lake, 2)
        positions.record("silver.events-to-t", "silver.events", SinkPosition("id", "topic", "{}"), None)
        log.append([("2.json", StoredFile("file:///2.json", 1, "e", datetime.now(UTC)))])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(take, "_tagged", slow)
        folder = taken(lake)
    land(lake, "2.json")
    restore(lake, folder)
    assert positions.get("silver.events-to-t") is None  # the position would be ahead of the table
    assert LandingLog(lake.state.database, "events").known_among(["2.json"])


def test_a_backup_that_is_killed_is_none(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(monkeypatch, take.Manifest, "as_json"):
        taken(lake)
    [left] = (lake.home / "backups").iterdir()
    with pytest.raises(UsageError, match="is not a backup, or one that was interrupted"):
        restore(lake, folder_at(lake, str(left)))
    folder = taken(lake)
    assert [str(each) for _, each in folder.parent.backups()] == [str(folder)]
    with pytest.raises(UsageError) as refused:
        restore(lake, folder.parent)
    assert str(folder) in refused.value.hint


@pytest.mark.parametrize("name", first_by_default(["state.db", "tables/bronze.events.json", MANIFEST]))
def test_a_damaged_backup_is_refused(lake: Settings, name: str) -> None:
    folder = taken(lake)
    commit(lake, 2)
    land(lake, "2.json")
    before = pointers(lake)
    path = Path(str(folder)) / name
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(LakeproofError, match=r"is damaged|is not readable"):
        restore(lake, folder)
    assert pointers(lake) == before


@pytest.mark.parametrize(
    "name", first_by_default(["contracts/../../planted.yaml", "gold/in/planted.yaml", "contracts/.bashrc"])
)
def test_a_manifest_that_names_other_files_than_definitions_is_refused(
    lake: Settings, tmp_path: Path, name: str
) -> None:
    """Restoring writes these files, so a manifest from elsewhere could plant them."""
    lake = changed(lake, LAKE_CONTRACTS=tmp_path / "own" / "contracts", LAKE_GOLD=tmp_path / "own" / "gold")
    folder = taken(lake)
    file, manifest = Path(str(folder)) / name, Path(str(folder)) / MANIFEST
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"planted")
    found = json.loads(manifest.read_bytes())
    found["files"][name] = digest(b"planted")
    manifest.write_text(json.dumps(found))
    with pytest.raises(LakeproofError, match="is damaged") as refused:
        restore(lake, folder)
    assert "Use another backup." in refused.value.hint
    assert not (tmp_path / "own").exists()


def test_a_backup_of_another_lake_is_refused(lake: Settings, tmp_path: Path) -> None:
    folder = taken(lake)
    other = changed(lake, LAKE_HOME=tmp_path / "other")
    with pytest.raises(UsageError, match="is of the lake whose warehouse is"):
        restore(other, folder_at(other, str(folder)))
    assert not other.home.exists()
    shutil.copytree(lake.home, other.home)
    with pytest.raises(UsageError, match="outside of the warehouse"):
        taken(other)
    with pytest.raises(UsageError, match="outside of the warehouse"):
        restore(other, folder_at(other, str(folder)))


@pytest.mark.all
def test_an_answer_of_the_catalog_that_is_lost(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = taken(lake)
    commit(lake, 2)
    land(lake, "2.json")
    real: Any = references.database_of

    class Losing:
        """An engine whose commits succeed, but whose answers are lost."""

        def __init__(self, engine: Any) -> None:
            self._engine = engine

        def __getattr__(self, name: str) -> Any:
            return getattr(self._engine, name)

        @contextmanager
        def begin(self) -> Iterator[Any]:
            with self._engine.begin() as connection:
                yield connection
            raise OperationalError("commit", {}, Exception("server closed the connection"))

    with monkeypatch.context() as patch:
        patch.setattr(references, "database_of", lambda catalog: Losing(real(catalog)))
        newer = taken(lake)
        restore(lake, folder)
    assert numbers(lake, "bronze.events") == [1]
    restore(lake, newer)
    assert numbers(lake, "bronze.events") == [1, 2]


def test_a_file_is_needed_again_whose_unit_was_replayed_since_and_has_no_bytes(lake_settings: Settings) -> None:
    catalog = open_catalog(lake_settings)
    rows = pa.schema([("source", pa.string()), ("replay", pa.int64())])
    of_letters = pa.schema([("_source", pa.string()), ("raw", pa.binary())])
    catalog.create_namespace("ledger")
    ledger = catalog.create_table("ledger.events", rows)
    letters = catalog.create_table("ledger.letters", of_letters)
    names = ["large.json", "small.json"]
    ledger.append(pa.table({"source": names, "replay": [None, None]}, rows))
    letters.append(pa.table({"_source": names, "raw": [None, b"bytes"]}, of_letters))
    then = catalog.load_table("ledger.events").metadata
    ledger.append(pa.table({"source": names, "replay": [1, 1]}, rows))
    now = catalog.load_table("ledger.events").metadata
    (lake_settings.home / "landing" / "events").mkdir(parents=True)  # retention has removed both files
    assert lost_files(lake_settings, ledger.io, "events", then, now, letters.metadata) == ["large.json"]
    assert lost_files(lake_settings, ledger.io, "events", now, now, letters.metadata) == []


def test_data_files_of_the_ledger_that_the_backup_has_too_are_not_read(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog(lake_settings)
    catalog.create_namespace("ledger")
    ledger = catalog.create_table("ledger.events", SOURCE)
    (lake_settings.home / "landing" / "events").mkdir(parents=True)

    def lost(then: Table) -> list[str]:
        now = catalog.load_table("ledger.events")
        return lost_files(lake_settings, now.io, "events", then.metadata, now.metadata)

    for name in ("1.json", "2.json"):
        ledger.append(pa.table({"source": [name]}, SOURCE))
    then, opened = catalog.load_table("ledger.events"), list[str]()
    ledger.append(pa.table({"source": ["3.json"]}, SOURCE))
    real = pyarrow.PyArrowFile.open

    def count(file: pyarrow.PyArrowFile, seekable: bool = True) -> object:
        opened.append(file.location)
        return real(file, seekable)

    with monkeypatch.context() as patch:
        patch.setattr(pyarrow.PyArrowFile, "open", count)
        assert lost(then) == ["3.json"]
    assert len([file for file in opened if file.endswith(".parquet")]) == 1
    newest = catalog.load_table("ledger.events")
    ledger.overwrite(newest.scan().to_arrow())  # as a compaction
    assert lost(then) == ["3.json"]
    assert lost(newest) == []
    # After a restore, the next micro-batches have the numbers of others that a newer backup has.
    restored = parsed(Path(then.metadata_location.removeprefix("file://")).read_bytes())
    assert swap_metadata(catalog, "ledger.events", catalog.load_table("ledger.events").metadata_location, restored)
    catalog.load_table("ledger.events").append(pa.table({"source": ["4.json"]}, SOURCE))
    assert lost(newest) == ["4.json"]


def test_the_state_database_goes_to_another_kind(
    request: pytest.FixtureRequest, lake: Settings, postgres: PostgresServer
) -> None:
    at = datetime(2026, 11, 21, 6, tzinfo=UTC)
    name = ("a.json", StoredFile("file:///a.json", 1, "e", at))
    LandingLog(lake.state.database, "events").append([name])
    head = LandingLog(lake.state.database, "events").head()
    BreakerLog(lake.state.database, "events").pause(
        QueryKind.STREAM, ("0", "1", "c"), {"bad": 1, "examples": [EXAMPLE]}, None
    )
    proof = Proof("events", ProofKind.ALL, at, at, "me@here", ProofOutcome.CLEAN, 0)
    file = ProvenFile("bronze.events", "file:///1.parquet", "t", 1, -(2**63))
    record(open_database(lake.state.database), proof, [file])
    for _ in range(2):  # to Postgres, and back
        folder = taken(lake)
        assert EXAMPLE["raw"].encode() not in folder.storage.read(f"{folder.uri}/state.db")
        uri = postgres.new_database(PASSWORD) if lake.state.database.startswith("sqlite") else None
        BreakerLog(lake.state.database, "events").accept()
        lake = changed(lake, LAKE_LANDING_LOG_URI=uri)
        restore(lake, folder)
        log = LandingLog(lake.state.database, "events")
        assert (log.head(), [(each.name, each.landed_at) for each in log.files(0, 1)]) == (head, [("a.json", at)])
        with transaction(open_database(lake.state.database)) as connection:
            assert last_clean(connection, "events") == (replace(proof, number=1), [file])
        [pause] = BreakerLog(lake.state.database, "events").paused()
        assert (pause.found, pause.accepted_at) == ({"bad": 1, "examples": []}, None)  # as of the backup


def test_contracts_come_back_if_they_are_gone(lake: Settings, tmp_path: Path) -> None:
    own = tmp_path / "contracts"
    shutil.copytree(lake.contracts, own)
    lake = changed(lake, LAKE_CONTRACTS=own)
    folder = taken(lake)
    text = (own / "events.yaml").read_bytes()
    (own / "events.yaml").unlink()
    (own / "sensors.yaml").write_text("changed")
    done = restore(lake, folder)
    assert (done.added, done.differing) == ([str(own / "events.yaml")], [str(own / "sensors.yaml")])
    assert (own / "events.yaml").read_bytes() == text
    assert (own / "sensors.yaml").read_text() == "changed"


@pytest.mark.all
def test_a_folder_of_contracts_that_cannot_be_written_prevents_the_restore(lake: Settings, tmp_path: Path) -> None:
    own = tmp_path / "contracts"
    shutil.copytree(lake.contracts, own)
    lake = changed(lake, LAKE_CONTRACTS=own)
    folder = taken(lake)
    shutil.rmtree(own)
    own.write_text("not a folder")
    open_catalog(lake).drop_table("bronze.events")
    with pytest.raises(UnavailableError, match=f"Cannot write {own}/") as refused:
        restore(lake, folder)
    assert "permissions" in refused.value.hint
    assert not open_catalog(lake).table_exists("bronze.events")
    own.unlink()
    restore(lake, folder)
    assert (own / "events.yaml").is_file()
    assert open_catalog(lake).table_exists("bronze.events")


def test_a_contract_that_was_applied_later_is_applied_again(lake_settings: Settings, tmp_path: Path) -> None:
    lake = changed(lake_settings, LAKE_CONTRACTS=tmp_path / "contracts")
    shutil.copytree(lake_settings.contracts, lake.contracts)
    catalog, log, file = open_catalog(lake), ContractLog(lake.state.database), lake.contracts / "events.yaml"
    old = adopt(catalog, lake, "events", log)
    folder = taken(lake)
    text = yaml.safe_load(file.read_text())
    text["version"] = "9.0.0"
    text["schema"][0]["properties"].append({"name": "later", "logicalType": "string", "physicalType": "string"})
    file.write_text(yaml.safe_dump(text))
    carry_out(catalog, plan(catalog, lake, "events"), log)
    newer = log.current("events")
    assert newer != old.digest
    done = restore(lake, folder)
    assert done.differing == [str(file)]
    assert log.current("events") == old.digest
    assert "later" not in catalog.load_table("bronze.events").schema().column_names
    with pytest.raises(UsageError, match=r"Contract 9\.0\.0 of events has not been applied") as refused:
        adopt(catalog, lake, "events", log)
    assert "lakeproof contract apply events" in refused.value.hint
    carry_out(catalog, plan(catalog, lake, "events"), log)
    assert adopt(catalog, lake, "events", log).digest == newer
    assert "later" in catalog.load_table("bronze.events").schema().column_names


@pytest.mark.parametrize("place", first_by_default(["landing", "landing/events/backups", "warehouse/bronze/events"]))
def test_a_backup_where_it_would_be_taken_for_something_else(lake: Settings, place: str) -> None:
    before = pointers(lake)
    with pytest.raises(UsageError, match="which is for other files"):
        back_up(lake, folder_at(lake, str(lake.home / place)), WEEK)
    assert pointers(lake) == before


@pytest.mark.all
def test_a_backup_where_a_stream_lands_at_an_address_of_its_own(lake: Settings, tmp_path: Path) -> None:
    contracts, elsewhere = tmp_path / "contracts", tmp_path / "elsewhere"
    shutil.copytree(lake.contracts, contracts)
    server = f"servers: [{{server: landing, type: local, path: {elsewhere}}}]\n"
    (contracts / "events.yaml").write_text(server + (contracts / "events.yaml").read_text())
    (contracts / "broken.yaml").write_text("landing: [")
    own = changed(lake, LAKE_CONTRACTS=contracts)
    with pytest.raises(UsageError, match="which is for other files"):
        back_up(own, folder_at(own, str(elsewhere / "backups")), WEEK)
    back_up(own, folder_at(own, str(tmp_path / "backups")), WEEK)


def test_files_that_were_published_later_are_mentioned(lake: Settings) -> None:
    folder = taken(lake)
    assert not plan_restore(lake, folder).published
    storage = open_storage(lake.sinks.files, lake.s3)
    storage.write_new(f"{lake.sinks.files}/answers/1.parquet", b"")
    path = lake.home / "published" / "answers" / "1.parquet"
    os.utime(path, (time.time() + 60, time.time() + 60))
    plan = plan_restore(lake, folder)
    assert "Files were published after the backup." in "\n".join(restoring.lines(plan))


@pytest.mark.all
def test_snapshots_that_another_tool_expires_during_a_backup(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real, expired = Tables.tag, []

    def late(self: Tables, saved: SavedTable, *arguments: Any) -> None:
        name = saved.name
        if name == "silver.events" and not expired:
            expired.append(name)
            table = open_catalog(lake).load_table(name)
            snapshot = table.current_snapshot()
            assert snapshot is not None
            append(table, 2, "silver-events")
            table = open_catalog(lake).load_table(name)
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
        real(self, saved, *arguments)

    monkeypatch.setattr(Tables, "tag", late)
    made, folder = back_up(lake, folder_at(lake, None), WEEK)
    assert expired
    assert {each.name: each.rows for each in made.tables}["silver.events"] == 2
    assert set(actions(plan_restore(lake, folder)).values()) == {"unchanged"}


@pytest.mark.s3
def test_backups_in_a_bucket(lake: Settings, bucket: str, s3_settings: Any) -> None:
    lake = lake.model_copy(update={"s3": s3_settings})
    place = folder_at(lake, f"s3://{bucket}/backups/")
    first, second = (back_up(lake, place, WEEK)[1] for _ in range(2))
    assert {str(folder) for _, folder in place.backups()} == {str(first), str(second)}
    land(lake, "2.json")
    commit(lake, 2)
    done = restore(lake, first)
    assert numbers(lake, "gold.answers") == [1]
    assert (done.way_back or "").startswith(f"s3://{bucket}/backups/")


def test_the_commands(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables(lake).items():
        monkeypatch.setenv(name, str(value))

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, arguments)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.output

    assert "There are no backups." in run("backup", "--list")
    made = json.loads(run("backup", "--json", "--keep", "1h"))
    assert len(made["tables"]) == len(TABLES)
    [listed] = json.loads(run("backup", "--list", "--json"))
    assert listed["folder"] == made["folder"]
    assert "5 tables, kept until" in run("backup", "--list")
    commit(lake, 2)
    with pytest.raises(UnavailableError):
        run("restore", made["folder"], "--dry-run")
    land(lake, "2.json")
    said = run("restore", made["folder"], "--dry-run")
    assert "bronze.events: put back, 1 row." in said
    assert "Nothing was changed." in said
    with pytest.raises(UsageError, match="was not confirmed"):
        run("restore", made["folder"])
    assert numbers(lake, "bronze.events") == [1, 2]
    said = run("restore", made["folder"], "--yes")
    assert "Restored." in said
    assert numbers(lake, "bronze.events") == [1]
    undo = said.partition("To undo it: lakeproof restore ")[2].strip()
    assert json.loads(run("restore", undo, "--yes", "--json"))["is_done"]
    assert numbers(lake, "bronze.events") == [1, 2]
    with pytest.raises(UsageError, match="Expected a duration"):
        run("backup", "--keep", "soon")


def test_an_empty_lake_has_nothing_to_back_up(lake_settings: Settings) -> None:
    with pytest.raises(UsageError, match="no tables to back up"):
        taken(lake_settings)
    assert not (lake_settings.home / "backups").exists()


class Trimmed:
    """A topic whose brokers have removed the messages before offset 501."""

    def __init__(self, *_: object) -> None:
        pass

    def identity(self) -> tuple[str, list[int]]:
        return "id", [0]

    def extents(self, _: list[int]) -> dict[int, Extent]:
        return {0: Extent(501, 2000)}

    def is_compacted(self) -> bool:
        return False


class Compacted(Trimmed):
    """A topic whose brokers remove messages with the same key."""

    def is_compacted(self) -> bool:
        return True


def ledger_at(end: str) -> Any:
    """Return the metadata of a ledger whose stream reads the topic t."""
    properties = {
        "lakeproof.kafka.topic": json.dumps({"topic_id": "id", "start": "t/0=1000"}),
        "lakeproof.marker.bronze-events": json.dumps({"marker": {"end": end}}),
    }
    return SimpleNamespace(properties=properties)


def test_messages_of_the_past_that_were_read_since_are_lost_if_the_topic_lacks_them(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "Topic", Trimmed)
    state = open_database(lake_settings.state.database)
    then, now = ledger_at("t/0=1000"), ledger_at("t/0=1000;0=0-700")
    assert past_ranges("events", then, now) == [(0, 0, 700)]
    assert past_ranges("events", now, now) == []
    assert lost_offsets(lake_settings, "events", then, now, state) == ["t/0: offsets 0 to 500"]
    for each in (then, None):
        assert lost_offsets(lake_settings, "events", then, each, state) == []


def test_messages_of_a_compacted_topic_that_were_read_since_may_be_lost(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "Topic", Compacted)
    state = open_database(lake_settings.state.database)
    then, now = ledger_at("t/0=1000"), ledger_at("t/0=1200")
    assert lost_offsets(lake_settings, "events", then, now, state) == [
        "t/0: offsets 1,000 to 1,199, some of which compaction may have removed"
    ]
    for each in (then, None):
        assert lost_offsets(lake_settings, "events", then, each, state) == []


@pytest.mark.all
def test_a_message_is_needed_again_whose_unit_was_replayed_since_and_has_no_bytes(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "Topic", Trimmed)
    catalog, state = open_catalog(lake_settings), open_database(lake_settings.state.database)
    catalog.create_namespace("dead_letters")
    of_letters = pa.schema([("_source", pa.string()), ("raw", pa.binary())])
    columns = [("_source", pa.string()), ("_position", pa.int64()), ("_letter", pa.int64()), ("_attempt", pa.int64())]
    letters = catalog.create_table("dead_letters.events", of_letters)
    names = [source_name("t", 0, offset) for offset in (7, 8, 501, 9)]
    letters.append(pa.table({"_source": names, "raw": [None, b"bytes", None, None]}, of_letters))
    attempts = catalog.create_table("dead_letters.events_attempts", pa.schema(columns))
    attempts.append(pa.table({"_source": names[3:], "_position": [0], "_letter": [1], "_attempt": [1]}))
    then = catalog.load_table("dead_letters.events_attempts").metadata
    attempts.append(pa.table({"_source": names[:3], "_position": [0] * 3, "_letter": [1] * 3, "_attempt": [1] * 3}))
    now = catalog.load_table("dead_letters.events_attempts").metadata
    again = replayed_since(letters.io, letters.metadata, then, now)
    assert again == {names[0], names[2]}
    assert replayed_since(letters.io, letters.metadata, None, None) == set()
    ledger = ledger_at("t/0=1000")
    assert lost_offsets(lake_settings, "events", ledger, ledger, state, again) == ["t/0: offsets 7 to 7"]


def test_archives_since_the_backup_are_still_recorded(lake: Settings) -> None:
    catalog = open_catalog(lake)
    record_archive(catalog.load_table("ledger.events"), "s3://archive/then")
    folder = taken(lake)
    record_archive(catalog.load_table("ledger.events"), "s3://archive/since")
    for _ in range(2):
        restore(lake, folder)
        properties = catalog.load_table("ledger.events").properties
        assert archives_of(properties) == ["s3://archive/then", "s3://archive/since"]


def test_offsets_that_were_given_up_since_are_lost(
    lake_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "Topic", Trimmed)
    then, now = ledger_at("t/0=100"), ledger_at("t/0=1000")  # up to 300 were read, then the others were given up
    state = open_database(f"sqlite:///{tmp_path}/state.db")
    give_up_before(lake_settings.state.database, "events", 0, 501)
    assert lost_offsets(lake_settings, "events", then, now, state) == ["t/0: offsets 100 to 500"]
    give_up_before(f"sqlite:///{tmp_path}/state.db", "events", 0, 501)
    assert lost_offsets(lake_settings, "events", then, now, state) == []
