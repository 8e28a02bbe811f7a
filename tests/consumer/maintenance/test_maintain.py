"""Maintenance of a lake: fewer files and snapshots, the same rows in each engine, and the stream continues."""

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from structlog.testing import capture_logs
from tests.clocks import wait_for_a_day
from tests.consumer.lake import SessionOf, rows
from tests.consumer.replays import STREAM, WRONG, apply, batch, drain, land, order, replay, write_contract
from tests.lakes import changed
from tests.servers import SPARK_JARS
from typer.testing import CliRunner

from consumer.app import run as run_module
from consumer.cli import app
from consumer.cli import maintenance as cli_module
from consumer.iceberg import rewrite
from consumer.iceberg.append import open_table
from consumer.iceberg.growth import Growth
from consumer.maintenance import maintain as maintain_module
from consumer.maintenance.folders import folders_of, sharing
from consumer.maintenance.maintain import LEASE, Maintained, Size, as_json, lines, maintain
from consumer.queries import maintenance as maintenance_module
from consumer.queries.bulletin import Bulletin
from consumer.queries.maintenance import MaintenanceQuery
from lakeproof.catalog import open_catalog
from lakeproof.errors import UsageError
from lakeproof.holds import OF_BACKUP, PREFIX, hold, release
from lakeproof.references import change_tag, newest_metadata, tag_of
from lakeproof.settings import MaintenanceSettings, Settings, settings_of
from lakeproof.state.lease import LeaseHeldError, lease
from reader.connect import connect
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
TABLES = (
    "bronze.orders",
    "dead_letters.orders",
    "dead_letters.orders_attempts",
    "ledger.orders",
    "ledger.orders_silver",
    "silver.orders",
    "silver.orders_conflicts",
    "silver.orders_late",
    "gold.totals",
)
MICRO_BATCHES = 5


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.long)])  # five minutes on a busy machine
def settings(request: pytest.FixtureRequest, lake_settings: Settings, tmp_path: Path) -> Settings:
    changes: dict[str, Any] = {"LAKE_CONTRACTS": tmp_path / "contracts", "LAKE_GOLD": tmp_path / "gold"}
    if request.param == "s3":
        warehouse = request.getfixturevalue("s3_lake_settings").catalog.warehouse
        s3 = request.getfixturevalue("s3_settings")
        return changed(lake_settings, LAKE_WAREHOUSE=warehouse, **changes).model_copy(update={"s3": s3})
    return changed(lake_settings, **changes)


def fill(settings: Settings, session_of: SessionOf, first: int) -> None:
    """Land and process micro-batches, each with a duplicate and, under the wrong contract, dead letters."""
    for number in range(first, first + MICRO_BATCHES):
        records = [order(number * 10 + each, **([{}, *WRONG][each % 4])) for each in range(8)]
        land(settings, f"{number}.json", batch(*records, records[0]))
    # Silver takes each micro-batch of bronze by itself, however fast it follows.
    drain(changed(settings, LAKE_MAX_FILES_PER_MICRO_BATCH=1, LAKE_MAX_ROWS_PER_SILVER_MICRO_BATCH=1), session_of)


def all_rows(settings: Settings) -> Mapping[str, list[dict[str, Any]]]:
    """Return the rows of all tables, read by PyIceberg."""
    return {table: sorted(rows(settings, table), key=repr) for table in TABLES}


def counted(settings: Settings, session_of: SessionOf) -> dict[str, tuple[int, int, int]]:
    """Count the rows of each table in each engine."""
    spark = session_of(settings)
    with connect(settings) as duck:
        return {
            table: (
                spark.table(f"lake.{table}").count(),
                open_catalog(settings).load_table(table).scan().to_arrow().num_rows,
                duck.fetch(f"select count(*) from {table}")[0][0],
            )
            for table in TABLES
        }


def maintained(settings: Settings, session_of: SessionOf, *names: str, dry_run: bool = False) -> dict[str, Maintained]:
    done = maintain(settings, names, lambda: session_of(settings), dry_run=dry_run)
    assert [each.problem for each in done if each.problem] == []
    return {each.table: each for each in done}


@pytest.mark.all
def test_a_maintained_lake_has_the_same_rows_and_goes_on(settings: Settings, session_of: SessionOf) -> None:
    wait_for_a_day()  # on two days, a ledger would have more than one file after it
    write_contract(settings, right=False)
    fill(settings, session_of, 0)
    write_contract(settings, right=True)
    apply(settings)
    replay(settings, session_of)
    before, counts = all_rows(settings), counted(settings, session_of)
    assert all(len(set(each)) == 1 for each in counts.values())
    at_once = changed(settings, LAKE_MAINTENANCE_KEEP_HOURS=1e-9)

    planned = maintained(at_once, session_of, STREAM, dry_run=True)
    assert set(planned) == set(TABLES)
    assert all_rows(settings) == before

    done = maintained(at_once, session_of, STREAM)
    for table in ("bronze.orders", "ledger.orders", "silver.orders", "ledger.orders_silver"):
        assert planned[table].to_compact == done[table].before.files > done[table].after.files == 1
        assert sum(each.rows for each in done[table].compacted) == len(before[table])
        assert done[table].before.snapshots == planned[table].to_expire + 1
        assert done[table].after.snapshots == 1
    assert all_rows(settings) == before
    assert counted(settings, session_of) == counts
    assert [each.clean for each in verify(settings, STREAM)] == [True]
    assert all(not each.compacted for each in maintained(settings, session_of, STREAM).values())

    land(settings, "99.json", batch(order(1), order(990)))
    drain(settings, session_of)
    assert {row["id"] for row in rows(settings, "bronze.orders")} >= {"o990"}
    assert [each.clean for each in verify(settings, STREAM)] == [True]

    shown = "\n".join(lines(list(done.values()), dry_run=False))
    assert f"{len(before['bronze.orders'])} rows proven equal" in shown
    assert len(json.loads(as_json(list(done.values())))) == len(TABLES)


@pytest.fixture(scope="module")
def filled_once(session_of: SessionOf, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Fill a lake on a local disk, and keep a copy of its folder beside it."""
    folder = tmp_path_factory.mktemp("filled") / "lake"
    settings = settings_of(
        {
            "LAKE_HOME": folder,
            "LAKE_CONTRACTS": folder / "contracts",
            "LAKE_GOLD": folder / "gold",
            "LAKE_JARS": SPARK_JARS,
            "LAKE_MAINTENANCE_KEEP_HOURS": 1e-9,
        }
    )
    write_contract(settings, right=True)
    fill(settings, session_of, 0)
    shutil.copytree(folder, folder.with_name("kept"))
    return settings


@pytest.fixture
def filled(filled_once: Settings) -> Settings:
    """Restore the lake to the state in which it was filled."""
    shutil.rmtree(filled_once.home)
    shutil.copytree(filled_once.home.with_name("kept"), filled_once.home)
    return filled_once


@pytest.mark.all
def test_what_others_need_is_kept_and_named(filled: Settings, session_of: SessionOf) -> None:
    session = session_of(filled)
    first = session.sql("select snapshot_id from lake.bronze.orders.snapshots order by committed_at").first()
    assert first
    session.sql(f"alter table lake.bronze.orders create tag audit as of version {first[0]}").collect()
    old = [row["id"] for row in session.sql("select id from lake.bronze.orders version as of 'audit'").collect()]
    session.sql("alter table lake.silver.orders set tblproperties ('gc.enabled' = 'false')").collect()
    catalog, soon = open_catalog(filled), datetime.now(UTC) + timedelta(seconds=1)
    ledger = [int(row[0]) for row in session.sql("select snapshot_id from lake.ledger.orders.snapshots").collect()]
    until = datetime.now(UTC) + timedelta(hours=6)
    assert hold(catalog, "ledger.orders", "report", until, ledger[2])
    assert hold(catalog, "ledger.orders_silver", "late", soon)
    assert hold(catalog, "gold.totals", "report", until, oldest=True)  # a table of format 3
    windows = session.table("lake.gold.totals").count()
    time.sleep(1)
    planned = maintained(filled, session_of, dry_run=True)
    all_done = maintained(filled, session_of)
    done = all_done["bronze.orders"]
    assert done.kept_by == ["tag audit"]
    assert "  Older snapshots are kept by tag audit." in list(lines([done], dry_run=False))
    assert planned["bronze.orders"].to_expire == done.before.snapshots - 2
    assert done.after.snapshots == 2

    # A reader keeps its snapshot and all later ones until its deadline.
    assert all_done["ledger.orders"].kept_by == [f"reader report until {until:%F %H:%M} UTC"]
    assert planned["ledger.orders"].to_expire == 2
    assert {each.snapshot_id for each in catalog.load_table("ledger.orders").snapshots()} > set(ledger[2:])
    assert not catalog.load_table("ledger.orders").metadata.refs.keys() - {"main", f"{PREFIX}report"}
    assert list(catalog.load_table("ledger.orders_silver").metadata.refs) == ["main"]

    assert all_done["gold.totals"].kept_by == [f"reader report until {until:%F %H:%M} UTC"]
    assert planned["gold.totals"].to_expire == 0
    drain(filled, session_of)  # gold continues
    assert session_of(filled).table("lake.gold.totals").count() == windows
    assert session_of(filled).table("lake.gold.totals.refs").count() == 2

    # Nothing is removed from a table whose property gc.enabled is false.
    kept = all_done["silver.orders"]
    assert kept.remark == "Nothing is removed: its property gc.enabled is false."
    assert f"  {kept.remark}" in list(lines([kept], dry_run=False))
    assert (kept.problem, kept.to_expire, bool(kept.compacted)) == ("", 0, True)
    after = session_of(filled).sql("select id from lake.bronze.orders version as of 'audit'")
    assert [row["id"] for row in after.collect()] == old


@pytest.mark.long
def test_snapshots_are_kept_for_an_hour_and_orphans_for_three_days(filled: Settings, session_of: SessionOf) -> None:
    (folder,) = (filled.home / "warehouse" / "bronze").iterdir()
    new, old = folder / "data" / "new.parquet", folder / "data" / "old.parquet"
    for path, age in ((new, timedelta(days=2)), (old, timedelta(days=4))):
        path.write_bytes(b"left behind")
        at = (datetime.now(UTC) - age).timestamp()
        os.utime(path, (at, at))
    planned = maintained(filled, session_of, dry_run=True)["bronze.orders"]
    assert (planned.orphans, old.exists()) == (1, True)
    # The settings in a contract or product apply to its own tables alone.
    contract, product = filled.contracts / f"{STREAM}.yaml", filled.gold / "totals.yaml"
    own = "customProperties:\n  - {property: maintenance, value: {compact: false, orphan_hours: 24}}\n"
    contract.write_text(contract.read_text().replace("customProperties:\n", own))
    with product.open("a") as file:
        file.write("\nmaintenance: {keep_hours: 0.000001}\n")
    all_done = maintained(changed(filled, LAKE_MAINTENANCE_KEEP_HOURS=None), session_of)
    done = all_done["bronze.orders"]
    assert (done.orphans, new.exists(), old.exists()) == (2, False, False)
    assert (done.after.snapshots, done.compacted) == (done.before.snapshots, [])
    assert all_done["gold.totals"].after.snapshots == 1
    contract.write_text(contract.read_text().replace(own, "customProperties:\n"))
    at_rest = maintained(changed(filled, LAKE_MAINTENANCE_KEEP_HOURS=None), session_of)["bronze.orders"]
    assert at_rest.after.snapshots == at_rest.before.snapshots + 2  # one on the branch, and one of the swap


@pytest.mark.all
def test_a_compaction_that_is_not_proven_is_a_problem_of_its_table(
    filled: Settings, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten: Any = rewrite._rewrite

    def lose_a_row(table: Any, name: str, options: Any) -> None:
        rewritten(table, name, options)
        if table.name == "bronze.orders":
            branch = f"lake.bronze.orders.`branch_{name}`"
            table.spark.sql(f"delete from {branch} where id = 'o0'").collect()

    monkeypatch.setattr(rewrite, "_rewrite", lose_a_row)
    before = all_rows_of(filled, "bronze.orders")
    done = {each.table: each for each in maintain(filled, [], lambda: session_of(filled), dry_run=False)}
    assert done["bronze.orders"].problem.startswith("A compaction would have changed rows, so it was not published")
    assert done["bronze.orders"].after.files == done["bronze.orders"].before.files
    assert done["silver.orders"].compacted
    assert all_rows_of(filled, "bronze.orders") == before
    assert list(open_table(session_of(filled), "bronze.orders", "").loaded.refs().keySet()) == ["main"]


@pytest.mark.all
def test_what_is_wrong_with_a_table_does_not_keep_others_from_maintenance(
    filled: Settings, session_of: SessionOf
) -> None:
    table = open_catalog(filled).load_table("bronze.orders")
    lost = Path(urlsplit(next(iter(table.scan().plan_files())).file.file_path).path)
    lost.rename(lost.with_suffix(".away"))
    opened = maintain_module.tables_of

    def one_that_is_dropped_meanwhile(settings: Settings, *more: Any) -> dict[str, MaintenanceSettings]:
        return {"bronze.dropped": settings.maintenance, **opened(settings, *more)}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(maintain_module, "tables_of", one_that_is_dropped_meanwhile)
        done = {each.table: each for each in maintain(filled, [], lambda: session_of(filled))}
    assert "bronze.dropped" in done["bronze.dropped"].problem
    assert lost.name in done["bronze.orders"].problem
    assert {each.table for each in done.values() if each.problem} == {"bronze.dropped", "bronze.orders"}
    assert done["silver.orders"].compacted


@pytest.mark.all
def test_a_table_that_has_grown_is_maintained_and_files_of_another_are_no_orphans(
    filled: Settings, session_of: SessionOf, tmp_path: Path
) -> None:
    settings = changed(filled, LAKE_MAINTENANCE_AFTER_FILES=MICRO_BATCHES)
    query, session = MaintenanceQuery(settings, [STREAM]), session_of(filled)
    bulletin = Bulletin()

    def files() -> dict[str, int]:
        return {
            table: session.table(f"lake.{table}.files").count() for table in ("bronze.orders", "silver.orders_late")
        }

    before = files()
    assert before["bronze.orders"] >= MICRO_BATCHES
    query._maintain(session, bulletin, is_time=False)
    assert files() == before | {"bronze.orders": 1}
    query._maintain(session, bulletin, is_time=False)
    assert query.micro_batches == 1

    check_shared_folders(filled, session_of)


def test_a_maintenance_that_another_one_keeps_out_is_tried_at_the_next_look(
    lake_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen, takes = 0.0, list[float](), list[Callable[[Any], bool]]()
    monkeypatch.setattr(maintenance_module, "monotonic", lambda: now)
    monkeypatch.setattr(maintenance_module, "follow", lambda _spark, _name, take, *_, **__: takes.append(take))
    monkeypatch.setattr(maintenance_module, "tables_of", lambda *_: {"bronze.events": lake_settings.maintenance})
    monkeypatch.setattr(maintenance_module, "maintain_table", lambda *_: seen.append(now))
    monkeypatch.setattr(maintenance_module, "prepare", lambda _: None)
    monkeypatch.setattr(maintenance_module, "growth", lambda *_: Growth())
    monkeypatch.setattr(maintenance_module, "open_table", lambda *_: None)
    MaintenanceQuery(lake_settings, ["events"]).start(MagicMock(), Bulletin())
    for now in (0.0, 900.0, 930.0, 960.0, 1830.0):
        with lease(lake_settings.state.database, LEASE) if now == 900 else nullcontext():
            takes[0](MagicMock())
    assert seen == [930.0, 1830.0]


def test_retention_begins_soon_after_the_start_and_comes_again_after_an_hour(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, retained, takes = 0.0, list[float](), list[Callable[[Any], bool]]()

    def retain_all(*_: Any, **__: Any) -> list[Any]:
        retained.append(now)
        if now == 30:
            raise LeaseHeldError("Another retention is running.")
        return []

    monkeypatch.setattr(maintenance_module, "monotonic", lambda: now)
    monkeypatch.setattr(maintenance_module, "follow", lambda _spark, _name, take, *_, **__: takes.append(take))
    monkeypatch.setattr(maintenance_module, "retain_all", retain_all)
    monkeypatch.setattr(MaintenanceQuery, "_maintain", lambda *_, **__: True)
    MaintenanceQuery(lake_settings, ["events"]).start(MagicMock(), Bulletin())
    for now in (0.0, 30.0, 60.0, 90.0, 900.0, 3630.0, 3660.0, 3690.0):  # noqa: B007 - the fakes read it
        takes[0](MagicMock())
    assert retained == [30.0, 60.0, 3660.0]


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_error_in_a_contract_leaves_out_the_tables_of_its_stream_only(
    dry_run: bool, lake_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = changed(lake_settings, LAKE_CONTRACTS=tmp_path / "contracts", LAKE_GOLD=tmp_path / "gold")
    for name in ("contracts", "gold"):
        shutil.copytree(ROOT / name, tmp_path / name)
    mine = ["bronze.events", "gold.user_activity", "ops.schema_changes"]
    broken = ["bronze.clickstream", "dead_letters.clickstream", "silver.clickstream_late", "ledger.clickstream_silver"]
    catalog = open_catalog(settings)
    for table in (*mine, *broken, "gold.page_views"):
        catalog.create_namespace_if_not_exists(table.partition(".")[0])
        catalog.create_table(table, pa.schema([("id", pa.int64())]))
    (tmp_path / "contracts" / "clickstream.yaml").write_text("kind: [")
    seen: list[str] = []

    def see(_spark: Any, name: str, *_: Any, **__: Any) -> Maintained:
        seen.append(name)
        return Maintained(name, Size(0, 0, 0), Size(0, 0, 0))

    for module in (maintain_module, maintenance_module):
        monkeypatch.setattr(module, "maintain_table", see)
        monkeypatch.setattr(module, "prepare", lambda _: None)
    monkeypatch.setattr(run_module, "start_session", MagicMock())
    monkeypatch.setattr(cli_module, "load_settings", lambda: settings)
    monkeypatch.setattr(cli_module, "check", lambda _: None)
    ended = CliRunner().invoke(app, ["maintain", *["--dry-run"] * dry_run])
    assert seen == mine
    assert ended.exit_code == 2
    assert f"The tables of clickstream were not maintained: {tmp_path}/contracts/clickstream.yaml" in ended.stderr

    seen.clear()
    assert CliRunner().invoke(app, ["maintain", "events", "clickstream"]).exit_code != 0
    assert seen == []

    monkeypatch.setattr(maintenance_module, "growth", lambda *_: Growth())
    monkeypatch.setattr(maintenance_module, "open_table", lambda *_: None)
    query = MaintenanceQuery(settings, ["clickstream", "events"])
    with capture_logs() as logged:
        query._maintain(MagicMock(), Bulletin(), is_time=False)
        assert logged == []
        query._maintain(MagicMock(), Bulletin(), is_time=True)
    assert seen == mine[:2]
    (line,) = logged
    assert (line["event"], line["stream"]) == ("maintenance failed", "clickstream")
    assert "clickstream.yaml" in line["problem"]


def test_an_error_in_a_data_product_leaves_out_only_its_table(lake_settings: Settings, tmp_path: Path) -> None:
    settings = changed(lake_settings, LAKE_GOLD=tmp_path / "gold")
    shutil.copytree(ROOT / "gold", tmp_path / "gold")
    mine = ["bronze.clickstream", "bronze.events", "gold.user_activity", "silver.events"]
    catalog = open_catalog(settings)
    for table in (*mine, "gold.broken", "gold.wrong", "gold.unreadable_anomalies"):
        catalog.create_namespace_if_not_exists(table.partition(".")[0])
        catalog.create_table(table, pa.schema([("id", pa.int64())]))
    (tmp_path / "gold" / "broken.yaml").write_text("kind: [")
    (tmp_path / "gold" / "wrong.yaml").write_text("name: wrong\nsilver: events\n")
    (tmp_path / "gold" / "unreadable.yaml").symlink_to("nowhere")
    skipped: list[str] = []
    found = maintain_module.tables_of(settings, [], lambda name, _: skipped.append(name))
    assert sorted(found) == mine
    assert sorted(skipped) == ["gold.broken", "gold.unreadable", "gold.wrong"]  # once, not for each stream
    with pytest.raises(UsageError, match=r"broken\.yaml"):
        maintain_module.tables_of(settings, [])

    query = MaintenanceQuery(settings, ["events"])
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patched, capture_logs() as logged:
        patched.setattr(maintenance_module, "prepare", lambda _: None)
        patched.setattr(maintenance_module, "growth", lambda *_: Growth())
        patched.setattr(maintenance_module, "open_table", lambda *_: None)
        patched.setattr(maintenance_module, "maintain_table", lambda _spark, name, *_: seen.append(name))
        query._maintain(MagicMock(), Bulletin(), is_time=True)
    assert sorted(seen) == mine[1:]
    assert {(line["event"], line["table"]) for line in logged} == {("maintenance failed", name) for name in skipped}


def test_no_orphan_file_is_removed_beside_files_of_a_dropped_table_that_a_backup_needs(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, schema = open_catalog(lake_settings), pa.schema([("id", pa.int64())])
    catalog.create_namespace("silver")
    for name in ("dropped", "other"):
        catalog.create_table(f"silver.{name}", schema).append(schema.empty_table())
    until = int((time.time() + 3600) * 1000)
    change_tag(catalog, "silver.dropped", f"{OF_BACKUP}one", lambda found: tag_of(found["snapshots"][0], until))
    catalog.drop_table("silver.dropped")
    catalog.create_table("silver.dropped", schema)
    seen: list[str] = []

    def opened(_spark: Any, name: str, _query: str) -> Any:
        return SimpleNamespace(
            name=name, property=lambda _: None, metadata=lambda: newest_metadata(catalog, name)[1], loaded=None
        )

    monkeypatch.setattr(maintain_module, "open_table", opened)
    monkeypatch.setattr(maintain_module, "_size", lambda _: Size(1, 1, 1))
    for name in ("prepare", "_compact", "_expire"):
        monkeypatch.setattr(maintain_module, name, lambda *_, **__: None)
    monkeypatch.setattr(maintain_module, "remove_orphans", lambda table, *_, **__: seen.append(table.name) or 0)
    done = maintain(lake_settings, [], MagicMock())
    assert seen == ["silver.other"]
    said = [line for line in lines(done, dry_run=False) if line.startswith("  ")]
    assert len(said) == 1
    assert said[0].startswith(
        "  Orphan files are not looked for: the folder has files of a dropped table, kept by 1 ba"
    )


def test_a_lake_without_any_valid_contract_reports_these(lake_settings: Settings, tmp_path: Path) -> None:
    settings = changed(lake_settings, LAKE_CONTRACTS=tmp_path)
    (tmp_path / "events.yaml").write_text("kind: [")
    found: list[str] = []
    assert maintain(settings, [], MagicMock(), lambda stream, _: found.append(stream)) == []
    assert found == ["events"]


def check_shared_folders(filled: Settings, session_of: SessionOf) -> None:
    """Check that files of a table in the folder of another table are not orphans."""
    session = session_of(filled)
    kept = "lake.bronze.orders_kept"
    session.sql("alter table lake.bronze.orders rename to bronze.orders_kept").collect()
    folder = urlsplit(open_catalog(filled).load_table("bronze.orders_kept").location()).path
    session.sql(f"create table lake.bronze.orders using iceberg location '{folder}' as select 1 as id").collect()
    for path in Path(folder).rglob("*"):
        os.utime(path, (0, 0))
    rows_before = session.table(kept).count()
    done = maintained(filled, session_of)
    assert session_of(filled).table(kept).count() == rows_before
    assert done["bronze.orders"].shared_with == ["bronze.orders_kept"]
    assert done["silver.orders"].shared_with == []
    said = "  Orphan files are not looked for: the folder may have files of bronze.orders_kept."
    assert said in list(lines([done["bronze.orders"]], dry_run=False))


@pytest.mark.parametrize(
    ("one", "other", "shares"),
    [
        ("file:///a/b", "/a/b/", True),
        ("file:///a/b", "file:/a//b/c", True),
        ("s3://a/b", "s3a://a/b", True),
        ("file:///a/b", "file:///a/bc", False),
        ("file:///a#b?c/d", "file:///a#b?c/e", False),
        ("s3://a/b", "s3://b/b", False),
    ],
)
def test_folders_are_compared_however_they_are_written(
    one: str, other: str, shares: bool, lake_settings: Settings
) -> None:
    catalog = cast(Catalog, Located({"one": one, "other": other}))
    assert sharing(folders_of(lake_settings, catalog))("bronze.one") == ["bronze.other"] * shares


class Located:
    """Catalog of tables with arbitrary locations."""

    def __init__(self, locations: Mapping[str, str]) -> None:
        self.locations = locations

    def list_namespaces(self, within: tuple[str, ...]) -> list[tuple[str]]:
        return [] if within else [("bronze",)]

    def list_tables(self, namespace: tuple[str]) -> list[tuple[str, str]]:
        return [(*namespace, name) for name in self.locations]

    def load_table(self, name: tuple[str, str]) -> SimpleNamespace:
        location = self.locations[name[1]]
        return SimpleNamespace(location=lambda: location, properties={})


def all_rows_of(settings: Settings, table: str) -> list[dict[str, Any]]:
    return sorted(rows(settings, table), key=repr)


@pytest.mark.all
def test_streams_of_spark_that_are_idle_for_longer_than_the_retention(
    lake_settings: Settings, session_of: SessionOf, tmp_path: Path
) -> None:
    spark, catalog = session_of(lake_settings), open_catalog(lake_settings)
    at_once = lake_settings.maintenance.model_copy(update={"keep_hours": 1e-9})
    tables = ("bronze.registered", "bronze.unregistered")
    taken: dict[str, list[int]] = {table: [] for table in tables}

    def add(*numbers: int) -> None:
        for table in tables:
            for number in numbers:
                spark.sql(f"insert into lake.{table} values ({number})").collect()

    def take(table: str) -> None:
        def keep(batch: DataFrame, _: int) -> None:
            taken[table] += [row["id"] for row in batch.collect()]

        stream = spark.readStream.format("iceberg").option("streaming-skip-overwrite-snapshots", "true")
        writer = stream.load(f"lake.{table}").writeStream.foreachBatch(keep)
        query = writer.option("checkpointLocation", str(tmp_path / table)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    spark.sql("create namespace lake.bronze").collect()
    for table in tables:
        version = 3 if table == tables[0] else 2  # 3 as in gold, 2 as in the other tables
        of_version = f"tblproperties ('format-version' = '{version}')"
        spark.sql(f"create table lake.{table} (id int) using iceberg {of_version}").collect()
    add(1, 2)
    assert hold(catalog, tables[0], "stream", datetime.now(UTC) + timedelta(hours=1), oldest=True)
    for table in tables:
        take(table)
    add(3, 4, 5, 6)
    for table in tables:
        done = maintain_module.maintain_table(spark, table, at_once, None)
        assert done.compacted
        assert (done.after.snapshots == 1) == (table == tables[1])
    add(7)
    take(tables[0])
    assert taken[tables[0]] == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(StreamingQueryException, match=r"Cannot load .* snapshot .* expired or removed"):
        take(tables[1])
    assert taken[tables[1]] == [1, 2]

    # As after its deadline, the reader is not registered.
    assert release(catalog, tables[0], "stream")
    add(8)
    maintain_module.maintain_table(spark, tables[0], at_once, None)
    with pytest.raises(StreamingQueryException, match="expired or removed"):
        take(tables[0])

    # A reader is registered, then released, between the look and the commit of a maintenance.
    expiring = maintain_module.expiring
    for change, snapshots in (
        (lambda: hold(catalog, tables[1], "late", datetime.now(UTC) + timedelta(hours=1), oldest=True), 2),
        (lambda: release(catalog, tables[1], "late"), 2),
        (lambda: None, 1),
    ):

        def meanwhile(*arguments: Any, change: Callable[[], object] = change) -> int:
            change()
            return expiring(*arguments)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(maintain_module, "expiring", meanwhile)
            done = maintain_module.maintain_table(spark, tables[1], at_once, None)
        assert (done.problem, done.after.snapshots) == ("", snapshots)


def test_one_at_a_time_and_streams_that_exist(lake_settings: Settings, session_of: SessionOf) -> None:
    with lease(lake_settings.state.database, LEASE), pytest.raises(LeaseHeldError):
        maintained(lake_settings, session_of)
    with pytest.raises(UsageError, match="no tables yet"):
        maintained(lake_settings, session_of)
    with pytest.raises(UsageError):
        maintained(lake_settings, session_of, "missing")
