"""A lake that was copied, moved, or taken to other storage is refused until `lakeproof move`, and complete after it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.consumer.direct import run_in_turn
from tests.consumer.lake import Invoke, SessionOf
from tests.consumer.taking import layer_queries
from tests.lakes import changed, variables
from tests.operations.tables import maintain
from tests.pages import blocks
from tests.servers import SPARK_JARS, Minio

from consumer.cli import app as consumer_app
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from lakeproof.catalog import open_catalog
from lakeproof.cli import app as lakeproof_app
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.product_file import load_product
from lakeproof.landing.root import record_archive
from lakeproof.move import rewrite
from lakeproof.move.outside import tables_outside
from lakeproof.settings import Settings, settings_of
from lakeproof.state.lease import lease
from reader.cli import app as reader_app
from reader.connect import connect
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
EVENT = {"user_id": "u", "event_timestamp": "2026-11-21T06:00:00Z", "event_type": "page_view", "properties": {}}
DELETES = "gold.with_position_deletes"
ARCHIVE = "s3://archive/events"


def take(settings: Settings, session_of: SessionOf, name: str) -> None:
    """Land a file of three events and a bad record, and take it to gold."""
    landing = settings.home / "landing" / "events"
    landing.mkdir(parents=True, exist_ok=True)
    records = [EVENT | {"event_id": f"{name}-{number}"} for number in range(3)]
    once = [EVENT | {"user_id": "once", "event_id": "once"}]  # a user whose row in gold stays beside a replaced one
    (landing / f"{name}.json").write_text(json.dumps([*records, *once, {"bad": True}]))
    settings = changed(settings, LAKE_SETTLE_SECONDS=0)
    trigger = Trigger(available_now=True)
    product = load_product(ROOT / "gold", "user_activity", lambda stream: load_contract(settings.contracts, stream))
    queries = [BronzeQuery(settings, "events", trigger), *layer_queries(settings, "events", trigger, [product])]
    run_in_turn(session_of(settings), settings, queries)


def tables_of(settings: Settings) -> list[str]:
    catalog = open_catalog(settings)
    return sorted(".".join(name) for space in catalog.list_namespaces() for name in catalog.list_tables(space))


def check(settings: Settings, session: SparkSession, files: int) -> None:
    """Check that all engines read all tables, PyIceberg every snapshot, and that the lake is clean."""
    catalog = open_catalog(settings)
    with connect(settings) as duckdb:
        for name in tables_of(settings):
            table = catalog.load_table(name)
            assert table.location().startswith(settings.catalog.warehouse_uri)
            rows = [table.scan(snapshot_id=each.snapshot_id).to_arrow().num_rows for each in table.snapshots()]
            query = f"SELECT count(*) FROM {name}"
            assert [session.sql(query.replace("FROM ", "FROM lake.")).collect()[0][0]] == rows[-1:], name
            assert duckdb.sql(query).fetchall() == [(rows[-1],)], name  # type: ignore[union-attr]
        [counted] = duckdb.sql("SELECT event_count FROM gold.user_activity WHERE user_id = 'u'").fetchall()  # type: ignore[union-attr]
    assert counted == (3 * files,)
    assert catalog.load_table(DELETES).scan().to_arrow().column("id").to_pylist() == [2]
    (found,) = verify(settings, "events", values=True)
    assert found.clean


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def filled_once(session_of: SessionOf, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Fill a lake, and keep a copy of its folder beside it.

    It has deletion vectors in gold, and a table with position deletes in a Parquet file.
    """
    home = tmp_path_factory.mktemp("filled") / "lake"
    settings = settings_of({"LAKE_HOME": home, "LAKE_CONTRACTS": ROOT / "contracts", "LAKE_JARS": SPARK_JARS})
    take(settings, session_of, "a")
    take(settings, session_of, "b")
    record_archive(open_catalog(settings).load_table("ledger.events"), ARCHIVE)
    session = session_of(settings)
    properties = "'format-version' = '2', 'write.delete.mode' = 'merge-on-read'"
    session.sql(f"CREATE TABLE lake.{DELETES} (id INT) USING iceberg TBLPROPERTIES ({properties})").collect()
    session.sql(f"INSERT INTO lake.{DELETES} SELECT /*+ COALESCE(1) */ * FROM VALUES (1), (2)").collect()
    session.sql(f"DELETE FROM lake.{DELETES} WHERE id = 1").collect()
    check(settings, session, 2)
    kinds = {
        (row.content, row.file_format)
        for name in (DELETES, "gold.user_activity")
        for row in session.sql(f"SELECT content, file_format FROM lake.{name}.all_delete_files").collect()
    }
    assert kinds == {(1, "PARQUET"), (1, "PUFFIN")}
    shutil.copytree(home, home.with_name("kept"))
    return settings


@pytest.fixture
def lake(filled_once: Settings) -> Settings:
    """Restore the lake to the state in which it was filled."""
    shutil.rmtree(filled_once.home, ignore_errors=True)
    shutil.copytree(filled_once.home.with_name("kept"), filled_once.home)
    return filled_once


@pytest.mark.all
@pytest.mark.timeout(1800)
def test_a_copied_lake_is_refused_until_it_is_moved(
    lake: Settings, session_of: SessionOf, invoke: Invoke, tmp_path: Path
) -> None:
    copy = changed(lake, LAKE_HOME=tmp_path / "copy")
    shutil.copytree(lake.home, copy.home)
    for app, arguments in (
        (consumer_app, ("run", "events", "--available-now")),
        (consumer_app, ("rebuild", "silver", "events")),
        (lakeproof_app, ("contract", "apply", "events")),
        (lakeproof_app, ("landing", "move", "events")),
    ):
        with pytest.raises(UsageError, match=r"bronze\.events and \d other tables are outside of the warehouse") as no:
            invoke(copy, app, *arguments)
        assert "`lakeproof move`" in no.value.hint
    assert "outside of the warehouse" in invoke(copy, reader_app, "tables")
    before = files_below(lake.home / "warehouse")
    lake.home.rename(tmp_path / "away")  # as after mv: the copy is enough
    with lease(copy.state.database, "silver.events"), pytest.raises(LakeproofError, match=r"silver\.events"):
        invoke(copy, lakeproof_app, "move")
    said = invoke(copy, lakeproof_app, "move")
    assert f"The landing zone of events is now {copy.landing.uri}/events." in said
    assert f"The archive of events stays {ARCHIVE}. An erasure in either lake removes files there." in said
    check(copy, session_of(copy), 2)
    (tmp_path / "away").rename(lake.home)
    assert "outside" not in invoke(copy, reader_app, "tables")
    assert "All tables are in LAKE_WAREHOUSE." in invoke(copy, lakeproof_app, "move")
    take(copy, session_of, "c")
    for name in tables_of(copy):
        maintain(session_of(copy), name)
    check(copy, session_of(copy), 3)
    assert files_below(lake.home / "warehouse") == before
    mine = files_below(copy.home / "warehouse")
    take(lake, session_of, "d")
    check(lake, session_of(lake), 3)
    assert files_below(copy.home / "warehouse") == mine


@pytest.mark.all
@pytest.mark.s3
def test_tables_are_taken_to_a_bucket_and_to_another(
    lake: Settings, s3_lake_settings: Settings, session_of: SessionOf, invoke: Invoke
) -> None:
    files, s3 = 2, variables(s3_lake_settings)
    for warehouse in (s3["LAKE_WAREHOUSE"], f"{s3['LAKE_WAREHOUSE']}-2"):
        keys = {name: value for name, value in s3.items() if name.startswith("AWS_")}
        there = changed(lake, LAKE_WAREHOUSE=warehouse, **keys)
        assert f"10 tables moved to {warehouse}." in invoke(there, lakeproof_app, "move")
        check(there, session_of(there), files)
        files += 1
        take(there, session_of, f"on-{files}")
    check(there, session_of(there), files)


def test_a_table_that_changes_meanwhile_is_not_moved(
    lake_settings: Settings, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog(lake_settings)
    catalog.create_namespace("gold")
    for name in ("gold.a", "gold.b"):
        rows = pa.table({"id": pa.array([1], pa.int32())})
        catalog.create_table(name, rows.schema).append(rows)
    there = changed(lake_settings, LAKE_WAREHOUSE=tmp_path / "new")
    original = rewrite.TableMove.metadata

    def late(self: rewrite.TableMove, uri: str) -> str:
        moved = original(self, uri)
        if self.name == "gold.b":
            with catalog.load_table(self.name).transaction() as transaction:
                transaction.set_properties({"a": "b"})
        return moved

    with monkeypatch.context() as patch:
        patch.setattr(rewrite.TableMove, "metadata", late)
        with pytest.raises(LakeproofError, match=r"gold\.b was changed"):
            invoke(there, lakeproof_app, "move")
    assert catalog.load_table("gold.a").location().startswith(lake_settings.catalog.warehouse_uri)
    invoke(there, lakeproof_app, "move")
    assert open_catalog(there).load_table("gold.b").scan().to_arrow().num_rows == 1
    assert open_catalog(there).load_table("gold.b").properties["a"] == "b"


def test_a_file_that_is_in_both_lakes_stays_whole(lake_settings: Settings, invoke: Invoke, tmp_path: Path) -> None:
    catalog = open_catalog(lake_settings)
    catalog.create_namespace("gold")
    rows = pa.table({"id": pa.array([1], pa.int32())})
    catalog.create_table("gold.a", rows.schema).append(rows)
    [file] = (lake_settings.home / "warehouse").rglob("*.parquet")
    content = b"another size than the table has recorded"
    file.write_bytes(content)
    there = changed(lake_settings, LAKE_WAREHOUSE=tmp_path / "new")
    shutil.copytree(lake_settings.home / "warehouse", tmp_path / "new", copy_function=os.link)
    assert "1 table moved to" in invoke(there, lakeproof_app, "move")
    assert file.read_bytes() == content


def test_tables_of_other_programs_are_moved_often(lake_settings: Settings, invoke: Invoke, tmp_path: Path) -> None:
    catalog = open_catalog(lake_settings)
    rows = pa.table({"id": pa.array([1], pa.int32())})
    for space in ("bronze", "gold"):
        catalog.create_namespace(space)
    warehouse = lake_settings.home / "warehouse"
    for name, location in (("bronze.without_ledger", None), ("gold.without_scheme", f"{warehouse}/gold/a")):
        catalog.create_table(name, rows.schema, location=location).append(rows)
    assert tables_outside(lake_settings) == []
    of_hadoop = catalog.create_table("gold.of_hadoop", rows.schema)
    of_hadoop.append(rows)
    named = f"{of_hadoop.location()}/metadata/v3.metadata.json"
    Path(of_hadoop.metadata_location.removeprefix("file://")).rename(named.removeprefix("file://"))
    catalog.drop_table("gold.of_hadoop")
    catalog.register_table("gold.of_hadoop", named)
    for number in range(12):  # file names do not exceed the limit of the file system
        there = changed(lake_settings, LAKE_WAREHOUSE=tmp_path / f"new-{number}")
        assert "3 tables moved to" in invoke(there, lakeproof_app, "move")
    for name in tables_of(there):
        assert open_catalog(there).load_table(name).scan().to_arrow().num_rows == 1, name


@pytest.mark.all
@pytest.mark.s3
def test_the_page_says_how(lake_settings: Settings, minio: Minio, bucket: str, invoke: Invoke, tmp_path: Path) -> None:
    shop = changed(lake_settings, LAKE_HOME=tmp_path / "shop" / "lake")
    invoke(shop, lakeproof_app, "contract", "apply", "events")
    shutil.copytree(shop.contracts, tmp_path / "shop" / "contracts")
    (tmp_path / "shop" / ".env").write_text("LAKE_HOME=lake\n")
    before = files_below(tmp_path / "shop" / "lake" / "warehouse")
    script = "\n".join(blocks("docs/operations/move.md", "sh")).replace("s3://lakehouse", f"s3://{bucket}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | minio.environment() | {"PATH": path}
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if "moved" in line] == [
        f"{len(tables_of(shop))} tables moved to {place}/warehouse."
        for place in (f"file://{tmp_path}/shop-copy/lake", f"file://{tmp_path}/branch/lake", f"s3://{bucket}")
    ]
    assert files_below(tmp_path / "shop" / "lake" / "warehouse") == before
