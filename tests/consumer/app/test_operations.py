"""Operations on a lake by operators and other tools: restore, move, unmount, expire, compact. No loss, no duplicates.

The next run either continues correctly, or refuses with a line that says what to do; following it corrects the lake.
"""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.consumer.crashes import crash_before
from tests.consumer.lake import Drain, SessionOf, rows
from tests.consumer.removal.accounts import check, land, landed_names
from tests.lakes import changed
from tests.operations import tables
from tests.operations.landing_zone import ALIASES, Alias, at_other_mount, by_link, by_uri_with_dots
from tests.operations.pieces import Piece, back_up, lose, restore
from tests.selection import grid
from typer.testing import CliRunner

from consumer.app.repair import absent_files, give_up, reset
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.landing.root import check_same_files, record_landing_root
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandingLog
from lakeproof.storage.errors import FileAbsentError
from reader.cli import app as reader_app
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

PIECES = (Piece.CHECKPOINTS, Piece.LANDING_LOG, Piece.CATALOG)
WITH_ALL = (PIECES[:1], PIECES[1:])
"""Subsets of pieces that are restored with ``ALL=1``, each piece once; by default, the last one is."""
ALIASES_WITH_ALL = (ALIASES[0], by_uri_with_dots, by_link, at_other_mount)
"""Other names of a folder with ``ALL=1``: another path, URI, link and mount; by default, the first one."""
TABLES = ("bronze.events", "dead_letters.events", "ledger.events")


@pytest.fixture
def drain(drain_directly: Drain) -> Drain:
    """Drain directly: these tests run a stream many times, and are about its tables."""
    return drain_directly


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that lets the next run crash before its append number `count`, and later runs not."""
    return crash_before(monkeypatch)


def run_and_follow_advice(settings: Settings, drain: Drain) -> str:
    """Run; if the run is refused, do what the hint says, and run again. Return the hint."""
    try:
        drain(settings)
    except LakeproofError as refused:
        hint = refused.hint
    else:
        return ""
    assert "`consumer reset events`" in hint
    reset(settings, "events")
    drain(settings)
    return hint


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(
            subset,
            id="+".join(subset),
            marks=[pytest.mark.long] * (subset not in WITH_ALL) + [pytest.mark.all] * (subset != WITH_ALL[-1]),
        )
        for size in (1, 2, 3)
        for subset in itertools.combinations(PIECES, size)
    ],
)
def test_pieces_restored_from_an_older_copy(
    lake_settings: Settings, landing: Path, drain: Drain, tmp_path: Path, pieces: tuple[Piece, ...]
) -> None:
    land(landing, "1.json", "2.json")
    drain(lake_settings)
    back_up(lake_settings, tmp_path / "saved", *PIECES)
    land(landing, "3.json", "4.json", "all-bad.json")
    drain(lake_settings)
    land(landing, "5.json")
    drain(lake_settings)
    restore(lake_settings, tmp_path / "saved", *pieces)
    land(landing, "0.json", "6.json")
    refused = run_and_follow_advice(lake_settings, drain)
    # A checkpoint only fits tables of the same moment.
    assert bool(refused) is not {Piece.CHECKPOINTS, Piece.CATALOG}.issubset(pieces)
    land(landing, "7.json")
    drain(lake_settings)
    check(lake_settings, landed_names(landing))


@pytest.mark.all
def test_a_log_that_went_on_after_it_was_restored_is_told_by_its_names(
    lake_settings: Settings, landing: Path, drain: Drain, tmp_path: Path
) -> None:
    # The number of files is the same, but their order is not: only their names show it.
    land(landing, "1.json")
    drain(lake_settings)
    back_up(lake_settings, tmp_path / "saved", *PIECES)
    land(landing, "2.json")
    drain(lake_settings)
    restore(lake_settings, tmp_path / "saved", Piece.LANDING_LOG)
    log = LandingLog(lake_settings.state.database, "events")
    land(landing, "0.json")
    log.append([each for each in landing_zone(lake_settings, "events").list() if each[0] == "0.json"])
    assert run_and_follow_advice(lake_settings, drain)
    check(lake_settings, landed_names(landing))


@pytest.mark.all
@pytest.mark.parametrize("files", [pytest.param("none new", marks=pytest.mark.long), "one new"])
def test_an_older_catalog_is_told_by_verify_and_at_the_start(
    lake_settings: Settings, landing: Path, drain: Drain, tmp_path: Path, files: str
) -> None:
    land(landing, "1.json")
    drain(lake_settings)
    back_up(lake_settings, tmp_path / "saved", *PIECES)
    land(landing, "2.json")
    drain(lake_settings)
    restore(lake_settings, tmp_path / "saved", Piece.CATALOG)
    if files == "one new":
        land(landing, "3.json")
    (verified,) = verify(lake_settings, "events")
    assert [(found.place, found.what) for found in verified.off] == [("2.json", "lost")]
    assert "consumer reset events" in verified.landed.problems[0]
    with pytest.raises(LakeproofError, match=r"position 2 .* position 1\."):
        drain(lake_settings)
    reset(lake_settings, "events")
    drain(lake_settings)
    check(lake_settings, landed_names(landing))


@pytest.mark.all
def test_a_catalog_that_is_gone_is_not_made_anew(
    lake_settings: Settings, landing: Path, drain: Drain, tmp_path: Path
) -> None:
    land(landing, "1.json")
    drain(lake_settings)
    back_up(lake_settings, tmp_path / "saved", *PIECES)
    lose(lake_settings, Piece.CATALOG)
    with pytest.raises(LakeproofError, match=r"no table bronze\.events"):
        drain(lake_settings)
    restore(lake_settings, tmp_path / "saved", Piece.CATALOG)
    land(landing, "2.json")
    drain(lake_settings)
    check(lake_settings, {"1.json", "2.json"})


def test_a_catalog_that_names_what_is_gone_is_one_clear_line(
    lake_settings: Settings, landing: Path, drain: Drain
) -> None:
    land(landing, "1.json")
    drain(lake_settings)
    for file in (lake_settings.home / "warehouse" / "ledger").rglob("*.metadata.json"):
        file.unlink()
    with pytest.raises(UnavailableError, match="Cannot read the catalog"):
        drain(lake_settings)


def test_all_tables_dropped_and_a_reset_read_everything_again(
    lake_settings: Settings, landing: Path, drain: Drain
) -> None:
    land(landing, "1.json", "2.json")
    drain(lake_settings)
    for table in TABLES:
        open_catalog(lake_settings).drop_table(table)
    reset(lake_settings, "events")
    drain(lake_settings)
    check(lake_settings, {"1.json", "2.json"})


@grid(table=TABLES, micro_batches={"1": 1, "2": 2})
def test_one_table_dropped_is_refused(
    lake_settings: Settings, landing: Path, drain: Drain, table: str, micro_batches: int
) -> None:
    for number in range(micro_batches):
        land(landing, f"{number}.json")
        drain(lake_settings)
    if (table, micro_batches) == ("ledger.events", 1):
        return  # looks like a crash before the first ledger row, and is treated as one
    open_catalog(lake_settings).drop_table(table)
    land(landing, "3.json")
    with pytest.raises(LakeproofError) as refused:
        drain(lake_settings)
    assert "consumer reset" in refused.value.hint


def maintain(session_of: SessionOf, settings: Settings) -> None:
    """Run plain Iceberg maintenance on all tables: compact, expire, remove orphans."""
    spark = session_of(settings)
    for table in TABLES:
        tables.maintain(spark, table)


# The moments between the commits, and each loss, are in the grid of `make chaos`.
@pytest.mark.long
@pytest.mark.parametrize(
    ("appends", "lost"),
    [
        pytest.param(None, (), id="between runs"),
        pytest.param(2, PIECES[:2], id="before ledger, checkpoints and landing log lost"),
    ],
)
def test_compaction_and_expiry_by_other_tools(
    lake_settings: Settings,
    landing: Path,
    drain: Drain,
    session_of: SessionOf,
    crash: Callable[[int], None],
    appends: int | None,
    lost: tuple[Piece, ...],
) -> None:
    land(landing, "1.json", "2.json")
    drain(lake_settings)
    land(landing, "3.json", "all-bad.json", "none.json")
    if appends is None:
        drain(lake_settings)
    else:
        crash(appends)
        with pytest.raises(LakeproofError, match="as asked"):
            drain(lake_settings)
    maintain(session_of, lake_settings)
    lose(lake_settings, *lost)
    land(landing, "0.json")
    drain(lake_settings)
    maintain(session_of, lake_settings)
    drain(lake_settings)
    check(lake_settings, landed_names(landing))


@pytest.mark.parametrize(
    "alias",
    [
        pytest.param(
            alias,
            id=alias.__name__,
            marks=[pytest.mark.long] * (alias not in ALIASES_WITH_ALL) + [pytest.mark.all] * (alias is not ALIASES[0]),
        )
        for alias in ALIASES
    ],
)
def test_the_same_folder_spelled_another_way_is_the_same(
    lake_settings: Settings, landing: Path, drain: Drain, alias: Alias
) -> None:
    land(landing, "1.json")
    drain(lake_settings)
    land(landing, "2.json")
    drain(alias(lake_settings))
    check(lake_settings, {"1.json", "2.json"})


@pytest.mark.all
@pytest.mark.parametrize("how", ["moved", "copied"])
def test_a_landing_folder_that_was_moved_is_refused_and_then_goes_on(
    lake_settings: Settings, landing: Path, drain: Drain, tmp_path: Path, how: str
) -> None:
    land(landing, "1.json", "sub/2.json")
    drain(lake_settings)
    land(landing, "3.json")
    LandingLog(lake_settings.state.database, "events").append(
        [each for each in landing_zone(lake_settings, "events").list() if each[0] == "3.json"]
    )  # discovered, but not read before the move
    if how == "moved":
        landing.parent.rename(tmp_path / "elsewhere")
    else:
        shutil.copytree(landing.parent, tmp_path / "elsewhere", copy_function=shutil.copyfile)  # does not copy times
    moved = changed(lake_settings, LAKE_LANDING=str(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match=r"landing zone of events was .*, but LAKE_LANDING is now") as refused:
        drain(moved)
    assert "lakeproof landing move events" in refused.value.hint
    catalog, zone = open_catalog(moved), landing_zone(moved, "events")
    assert check_same_files(catalog, "events", zone) == (2, 2)
    record_landing_root(catalog, "events", zone)
    land(tmp_path / "elsewhere" / "events", "4.json")
    drain(moved)
    check(moved, {"1.json", "sub/2.json", "3.json", "4.json"})


def test_another_folder_is_not_taken_for_a_moved_one(
    lake_settings: Settings, landing: Path, drain: Drain, tmp_path: Path
) -> None:
    land(landing, "1.json")
    drain(lake_settings)
    other = changed(lake_settings, LAKE_LANDING=str(tmp_path / "other"))
    land(tmp_path / "other" / "events", "2.json")
    with pytest.raises(UsageError, match="None of the 1 files"):
        check_same_files(open_catalog(other), "events", landing_zone(other, "events"))


@pytest.mark.all
def test_folders_that_link_to_each_other_make_one_file_one_source(
    lake_settings: Settings, landing: Path, drain: Drain, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        land(landing, f"{name}/{name}.json")
    for name, other in itertools.permutations("abc", 2):
        (landing / name / f"to-{other}").symlink_to(landing / other)
    (landing / "up").symlink_to(landing.parent)
    outside = tmp_path / "outside"
    land(outside, "o.json")
    (landing / "first").symlink_to(outside)
    drain(lake_settings)
    (landing / "another").symlink_to(outside)
    drain(lake_settings)
    check(lake_settings, {"a/a.json", "b/b.json", "c/c.json", f"{outside}/o.json"})


@grid(appends={"before bronze": 0, "before dead letters": 1, "before ledger": 2}, checkpoint=["kept", "lost"])
def test_what_is_absent_is_waited_for(
    lake_settings: Settings, landing: Path, drain: Drain, crash: Callable[[int], None], appends: int, checkpoint: str
) -> None:
    land(landing, "1.json")
    drain(lake_settings)
    land(landing, "2.json", "3.json")
    crash(appends)
    with pytest.raises(LakeproofError, match="as asked"):
        drain(lake_settings)
    if checkpoint == "lost":
        lose(lake_settings, Piece.CHECKPOINTS)
    landing.rename(landing.with_name("unmounted"))
    landing.mkdir()
    with pytest.raises(UnavailableError, match="does not exist") as absent:
        drain(lake_settings)
    assert absent.value.exit_code == 3
    landing.rmdir()
    # The error names the folder if no micro-batch was begun, else a file.
    with pytest.raises(UnavailableError, match=r"folder .* does not exist|json does not exist"):
        drain(lake_settings)
    landing.with_name("unmounted").rename(landing)
    drain(lake_settings)
    check(lake_settings, {"1.json", "2.json", "3.json"})


def test_what_will_not_come_back_is_given_up_by_a_command(
    lake_settings: Settings, landing: Path, drain: Drain, crash: Callable[[int], None]
) -> None:
    land(landing, "1.json", "2.json")
    crash(0)
    with pytest.raises(LakeproofError, match="as asked"):
        drain(lake_settings)
    (landing / "2.json").unlink()
    with pytest.raises(FileAbsentError, match=r"2\.json") as absent:
        drain(lake_settings)
    assert "consumer give-up" in absent.value.hint
    assert absent_files(lake_settings, "events") == ["2.json"]
    give_up(lake_settings, "events", ["2.json"])
    assert absent_files(lake_settings, "events") == []
    drain(lake_settings)
    letters = [row for row in rows(lake_settings, "dead_letters.events") if row["_source"] == "2.json"]
    assert [[reason["code"] for reason in row["reasons"]] for row in letters] == [["absent"]]
    (verified,) = verify(lake_settings, "events")
    assert verified.clean


@pytest.mark.all
def test_files_that_were_only_touched_are_read(
    lake_settings: Settings, landing: Path, drain: Drain, crash: Callable[[int], None]
) -> None:
    # A restore from a tape archive keeps whole seconds only.
    land(landing, "1.json", "2.json")
    crash(0)
    with pytest.raises(LakeproofError, match="as asked"):
        drain(lake_settings)
    for path in landing.iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    drain(lake_settings)
    check(lake_settings, {"1.json", "2.json"})
    for path in landing.iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))
    check(lake_settings, {"1.json", "2.json"})
    (landing / "1.json").write_bytes((landing / "1.json").read_bytes().replace(b"page_view", b"page_vieW"))
    (verified,) = verify(lake_settings, "events")
    assert [(found.place, found.what) for found in verified.off] == [("1.json", "changed")]


@pytest.mark.all
@grid(
    appends={"before dead letters": 1, "before ledger": 2},
    changed_too={"touched": False, "one overwritten": True},
)
def test_files_touched_between_crash_and_restart_keep_their_dead_letters(
    lake_settings: Settings,
    landing: Path,
    drain: Drain,
    crash: Callable[[int], None],
    appends: int,
    changed_too: bool,
) -> None:
    land(landing, "1.json", "2.json")
    crash(appends)
    with pytest.raises(LakeproofError, match="as asked"):
        drain(lake_settings)
    if changed_too:  # same size, other content
        (landing / "1.json").write_bytes((landing / "1.json").read_bytes().replace(b"page_view", b"page_vieW"))
    for path in landing.iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    drain(lake_settings)
    if changed_too:
        (verified,) = verify(lake_settings, "events")
        assert {found.place for found in verified.off} >= {"1.json"}
    else:
        check(lake_settings, {"1.json", "2.json"})


@pytest.mark.all
def test_rows_without_a_marker_are_not_read_again(
    lake_settings: Settings, landing: Path, drain: Drain, session_of: SessionOf
) -> None:
    land(landing, "1.json", "2.json")
    drain(lake_settings)
    spark = session_of(lake_settings)
    for table in TABLES:
        tables.rewrite_data_files(spark, table)
        tables.expire_all_but_last(spark, table)
        tables.drop_properties(spark, table)
    for _ in range(2):
        with pytest.raises(LakeproofError, match="was removed") as refused:
            drain(lake_settings)
        assert (
            "Or drop bronze.events, dead_letters.events, dead_letters.events_attempts and ledger.events"
            in refused.value.hint
        )
        reset(lake_settings, "events")  # changes nothing
    assert len(rows(lake_settings, "bronze.events")) == 2


@pytest.mark.all
def test_a_file_that_was_given_up_and_is_back_is_told(
    lake_settings: Settings, landing: Path, drain: Drain, crash: Callable[[int], None]
) -> None:
    land(landing, "1.json", "2.json")
    crash(0)
    with pytest.raises(LakeproofError, match="as asked"):
        drain(lake_settings)
    (landing / "2.json").rename(landing / "2.json.tmp")
    give_up(lake_settings, "events", ["2.json"])
    drain(lake_settings)
    (landing / "2.json.tmp").rename(landing / "2.json")
    (verified,) = verify(lake_settings, "events")
    assert [(found.place, found.what) for found in verified.off] == [("2.json", "lost")]


@pytest.mark.all
def test_a_linked_folder_that_became_a_folder_has_landed_again(
    lake_settings: Settings, landing: Path, drain: Drain, tmp_path: Path
) -> None:
    outside = tmp_path / "_work" / "a"
    land(outside, "1.json")
    (landing / "a").symlink_to(outside)
    drain(lake_settings)
    assert {row["source"] for row in rows(lake_settings, "ledger.events")} == {f"{outside}/1.json"}
    (landing / "a").unlink()
    outside.rename(landing / "a")
    drain(lake_settings)
    (verified,) = verify(lake_settings, "events")
    assert verified.landed.facts["resent"] == ((f"{outside}/1.json", "a/1.json"),)


def test_hidden_names_are_no_batches_and_are_counted(lake_settings: Settings, landing: Path, drain: Drain) -> None:
    land(landing, "1.json", "_SUCCESS", ".1.json.crc", "_temporary/2.json")
    drain(lake_settings)
    (verified,) = verify(lake_settings, "events")
    assert (verified.clean, verified.landed.facts["hidden_files"]) == (True, 3)
    assert {row["source"] for row in rows(lake_settings, "ledger.events")} == {"1.json"}


def test_verify_does_not_say_clean_while_files_wait(
    lake_settings: Settings, landing: Path, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(landing, "1.json")
    drain(lake_settings)
    land(landing, "2.json")
    monkeypatch.setenv("LAKE_HOME", str(lake_settings.home))
    monkeypatch.setenv("LAKE_CONTRACTS", str(lake_settings.contracts))
    said = CliRunner().invoke(reader_app, ["verify", "events"])
    assert said.exit_code == 0
    assert "Clean" not in said.stdout
    assert "1 file is not consumed yet" in said.stdout
