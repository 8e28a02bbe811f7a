"""Each operation on a lake by the tests and the chaos grid does what it says, on a table that is not ours."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from tests.consumer.lake import SessionOf
from tests.operations import tables
from tests.operations.landing_zone import ALIASES, Alias, by_double_slash, link_in_a_circle, moved, unmounted
from tests.operations.pieces import Piece, back_up, lose, restore

from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings
from lakeproof.storage.local import local_path

pytestmark = pytest.mark.spark


@pytest.fixture(params=["lake_settings", pytest.param("s3_lake_settings", marks=[pytest.mark.s3, pytest.mark.all])])
def lake(request: pytest.FixtureRequest) -> Settings:
    settings: Settings = request.getfixturevalue(request.param)
    return settings


@pytest.fixture
def session(lake: Settings, session_of: SessionOf) -> SparkSession:
    """Return a session of a lake with a table ``ops.t`` of three commits with one row each."""
    open_catalog(lake)
    session = session_of(lake)
    session.sql("CREATE NAMESPACE lake.ops")
    session.sql("CREATE TABLE lake.ops.t (n bigint) USING iceberg TBLPROPERTIES ('ours' = 'kept')")
    for number in range(3):
        session.sql(f"INSERT INTO lake.ops.t VALUES ({number})")
    return session


@pytest.fixture
def table(lake: Settings, session: SparkSession) -> Callable[[], Table]:
    return lambda: open_catalog(lake).load_table("ops.t")


def numbers(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["n"].to_pylist())


@pytest.mark.parametrize("how", ["procedure", "action", "pyiceberg"])
def test_expiry_leaves_one_snapshot_and_all_rows(
    lake: Settings, session: SparkSession, table: Callable[[], Table], how: str
) -> None:
    last = table().current_snapshot()
    if how == "pyiceberg":
        tables.expire_all_but_last_by_pyiceberg(lake, "ops.t")
    else:
        {"procedure": tables.expire_all_but_last, "action": tables.expire_all_but_last_by_action}[how](session, "ops.t")
    assert [each.snapshot_id for each in table().snapshots()] == [last and last.snapshot_id]
    assert numbers(table()) == [0, 1, 2]


def test_compaction_leaves_one_data_file(session: SparkSession, table: Callable[[], Table]) -> None:
    tables.rewrite_data_files(session, "ops.t")
    assert len(table().inspect.data_files()) == 1
    assert numbers(table()) == [0, 1, 2]


def test_manifests_are_rewritten_into_one(session: SparkSession, table: Callable[[], Table]) -> None:
    assert len(table().inspect.manifests()) == 3
    tables.rewrite_manifests(session, "ops.t")
    assert len(table().inspect.manifests()) == 1
    assert numbers(table()) == [0, 1, 2]


def test_orphans_are_removed_however_new(lake: Settings, session: SparkSession, table: Callable[[], Table]) -> None:
    orphan = f"{table().location()}/data/orphan.parquet"
    with table().io.new_output(orphan).create() as output:
        output.write(b"nobody's")
    assert [each.rpartition("/")[2] for each in tables.remove_orphan_files(session, "ops.t")] == ["orphan.parquet"]
    assert not table().io.new_input(orphan).exists()
    assert numbers(table()) == [0, 1, 2]


def test_maintenance_leaves_all_rows(session: SparkSession, table: Callable[[], Table]) -> None:
    tables.maintain(session, "ops.t")
    assert len(table().snapshots()) == 1
    assert len(table().inspect.data_files()) == 1
    assert numbers(table()) == [0, 1, 2]


@pytest.mark.parametrize(("snapshots", "left"), [(1, [0, 1]), (2, [0])])
def test_a_rollback_takes_the_last_commits_back(
    session: SparkSession, table: Callable[[], Table], snapshots: int, left: list[int]
) -> None:
    tables.roll_back(session, "ops.t", snapshots)
    assert numbers(table()) == left
    assert table().properties["ours"] == "kept"


@pytest.mark.all
def test_a_table_is_replaced_by_its_own_rows(session: SparkSession, table: Callable[[], Table]) -> None:
    before = table()
    tables.replace_by_itself(session, "ops.t")
    assert numbers(table()) == [0, 1, 2]
    assert table().metadata.table_uuid == before.metadata.table_uuid
    assert (now := table().current_snapshot())
    assert now.parent_snapshot_id is None


def test_a_table_is_replaced_by_an_empty_one(session: SparkSession, table: Callable[[], Table]) -> None:
    tables.replace_by_nothing(session, "ops.t")
    assert numbers(table()) == []
    assert table().schema().column_names == ["n"]


@pytest.mark.all
def test_properties_are_dropped(session: SparkSession, table: Callable[[], Table]) -> None:
    assert "ours" in tables.drop_properties(session, "ops.t")
    assert table().properties.keys() <= {"owner"}  # Spark hides this property
    assert tables.drop_properties(session, "ops.t") == set()
    assert numbers(table()) == [0, 1, 2]


def content(settings: Settings) -> dict[str, str]:
    """Return the content of every file of a lake."""
    files = (path for path in settings.home.rglob("*") if path.is_file())
    return {str(path.relative_to(settings.home)): path.read_text() for path in files}


@pytest.fixture
def pieces(lake_settings: Settings) -> Settings:
    """Return a lake in which every piece contains the word "old"."""
    for name in (
        "catalog.db",
        "catalog.db-wal",
        "checkpoints/a/1",
        "landing/events/1",
        "landing-log.db",
        "warehouse/w",
    ):
        path = lake_settings.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")
    return lake_settings


def is_of(piece: Piece, name: str) -> bool:
    return name in {piece, f"{piece}-wal"} or name.startswith(f"{piece}/")


@pytest.mark.parametrize("piece", Piece)
def test_a_piece_is_restored_and_no_other(pieces: Settings, tmp_path: Path, piece: Piece) -> None:
    before = content(pieces)
    back_up(pieces, tmp_path / "copy")
    for name in before:
        (pieces.home / name).write_text("new")
        (pieces.home / f"{piece}-wal" if piece.endswith(".db") else pieces.home / piece / "newer").write_text("new")
    restore(pieces, tmp_path / "copy", piece)
    assert content(pieces) == {name: "old" if is_of(piece, name) else "new" for name in before}
    restore(pieces, tmp_path / "copy")
    assert content(pieces) == before


def test_what_was_not_there_is_gone_after_a_restore(pieces: Settings, tmp_path: Path) -> None:
    lose(pieces, Piece.CHECKPOINTS)
    assert not (pieces.home / "checkpoints").exists()
    back_up(pieces, tmp_path / "copy", Piece.CHECKPOINTS)
    (pieces.home / "checkpoints").mkdir()
    restore(pieces, tmp_path / "copy", Piece.CHECKPOINTS)
    assert not (pieces.home / "checkpoints").exists()


@pytest.mark.parametrize("empty", [False, True])
def test_an_unmounted_landing_zone_comes_back(pieces: Settings, empty: bool) -> None:
    before = content(pieces)
    landing = pieces.home / "landing"
    with unmounted(pieces, empty):
        assert landing.exists() == empty
        assert not list(landing.rglob("*"))
    assert content(pieces) == before


@pytest.mark.parametrize("alias", ALIASES, ids=lambda alias: alias.__name__)
def test_an_alias_leads_to_the_same_files_under_another_address(pieces: Settings, alias: Alias) -> None:
    named = alias(pieces)
    assert (local_path(named.landing.uri) / "events" / "1").samefile(pieces.home / "landing" / "events" / "1")
    assert (named.landing.uri == pieces.landing.uri) == (alias is by_double_slash)


def test_a_moved_landing_zone_has_all_its_files(pieces: Settings, tmp_path: Path) -> None:
    named = moved(pieces, tmp_path / "elsewhere")
    assert (local_path(named.landing.uri) / "events" / "1").read_text() == "old"
    assert not (pieces.home / "landing").exists()


def test_folders_can_lead_to_each_other_for_ever(pieces: Settings) -> None:
    link_in_a_circle(pieces)
    events = pieces.home / "landing" / "events"
    (events / "first" / "a").touch()
    assert (events / "first" / "to-second" / "to-first" / "to-second" / "to-first" / "a").exists()
