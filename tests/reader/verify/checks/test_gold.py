"""Gold in the tables of a lake: markers, missing data, changes by others, and the output of verify."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.programs import forked
from tests.reader.verify.lake import restored
from tests.reader.verify.silver.lakes import SilverLake, batch
from tests.reader.verify.silver.tables import BRONZE, KEPT, NOON
from tests.selection import first_by_default
from typer.testing import CliRunner

from consumer.iceberg.marker import Committed, Marker, property_of
from consumer.layers.gold.columns import EPOCH, micros
from consumer.layers.rebuild import new_suffix
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import Product
from lakeproof.gold.product_file import load_product
from lakeproof.settings import Settings, settings_of
from lakeproof.state.lease import gold_lease, lease
from lakeproof.tables.names import PRODUCT, REBUILDING
from lakeproof.tables.schemas import gold_schema
from reader.cli import app
from reader.connect import connect
from reader.summary import print_summary
from reader.verify.check import Result, Scope
from reader.verify.checks import gold as gold_module
from reader.verify.checks.products import result_of
from reader.verify.findings import Finding

TABLE = "gold.activity"
CONTRACTS = Path(__file__).parents[4] / "contracts"
TEN = datetime(2026, 1, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
ACTIVITY = """\
name: activity
silver: events
keys: [user_id]
window: {size: 1 hour}
measures:
  events: count(*)
  newest: max(event_timestamp)
"""
FINAL = ACTIVITY + "publish: final\n"
# Silver keeps an event almost as old as the horizon, which then passes its window.
OLD = datetime(2025, 12, 25, 10, tzinfo=UTC)
CLOSING = [
    batch(("x", "2026-01-01T10:00:00Z", "a")),
    batch(("old", "2025-12-25T10:30:00Z", "a")),
    batch(("y", "2026-01-01T11:30:00Z", "a")),
    # An event in the future moves the horizon only up to its ingestion time: noon.
    batch(("z", "2026-01-01T11:59:59Z", "a"), ("future", "2026-02-01T00:00:00Z", "a")),
]

Row = dict[str, Any]


def window(start: datetime, events: int, user: str = "a", newest: datetime | None = None) -> Row:
    return {
        "window_start": start,
        "window_end": start + HOUR,
        "user_id": user,
        "events": events,
        "newest": newest or start,
        "_updated_at": NOON,
    }


class GoldLake(SilverLake):
    """A lake with silver, and tables of gold filled by the test."""

    def write_product(self, text: str, name: str = "activity") -> Product:
        """Write the file of a product; return the product."""
        (self.settings.gold / f"{name}.yaml").write_text(text.replace("name: activity", f"name: {name}"))
        return load_product(self.settings.gold, name, lambda _: self.contract)

    def create(self, text: str = ACTIVITY, name: str = "activity") -> Product:
        """Create the table of a product."""
        product = self.write_product(text, name)
        self.catalog.create_namespace_if_not_exists("gold")
        self.catalog.create_table(f"gold.{name}", gold_schema(product), properties={PRODUCT: product.digest})
        return product

    def fill(self, end: int, *rows: Row, name: str = "activity", horizon: datetime | None = None) -> None:
        """Replace the rows of a table, and move its marker."""
        product = load_product(self.settings.gold, name, lambda _: self.contract)
        table = self.catalog.load_table(f"gold.{name}")
        silver = str(self.catalog.load_table(KEPT).metadata.table_uuid)
        contents = str(micros(horizon - EPOCH)) if horizon else ""
        marker = Marker(silver, end - 1, product.digest, "0", str(end), contents=contents)
        with table.transaction() as transaction:
            transaction.overwrite(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))
            committed = Committed(marker, 1, 1).as_text()
            transaction.set_properties({property_of(f"gold-{name}"): committed})

    def verified(self) -> tuple[Result, ...]:
        """Return verify's results for gold."""
        with connect(self.settings) as session:
            found = gold_module.check(Scope(self.settings, session, "events"))
            assert session.fetch("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'verify%'") == []
            return tuple(sorted(found, key=lambda each: each.name))

    def problem(self) -> str:
        """Return the only problem."""
        (found,) = self.verified()
        assert (found.clean, found.facts["windows"], found.waiting, found.findings) == (False, 0, 0, ())
        (text,) = found.problems
        return text


def settings_in(folder: Path) -> Settings:
    (folder / "gold").mkdir()
    return settings_of({"LAKE_HOME": folder / "lake", "LAKE_CONTRACTS": CONTRACTS, "LAKE_GOLD": folder / "gold"})


def lake_in(folder: Path) -> GoldLake:
    lake = GoldLake(settings_in(folder))
    lake.decide(0, 3)
    lake.catalog.create_namespace("gold")
    return lake


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> GoldLake:
    return lake_in(tmp_path_factory.mktemp("gold"))


@pytest.fixture
def lake(shared: GoldLake) -> GoldLake:
    """All of silver is decided, and gold is empty. A test must not change silver."""
    for name in shared.catalog.list_tables("gold"):
        shared.catalog.drop_table(name)
    for path in shared.settings.gold.iterdir():
        path.unlink()
    return shared


@pytest.fixture
def own_lake(lake: GoldLake) -> Iterator[GoldLake]:
    """The lake for a test that changes silver: its tables are put back."""
    with restored(lake):
        yield lake


WHOLE = (window(TEN, 3), window(TEN + HOUR, 1))
CLEAN = result_of("activity", 2)


def test_gold_follows_silver(lake: GoldLake) -> None:
    lake.create()
    assert lake.verified() == (result_of("activity", 0, 4),)
    for end, rows, behind in ((1, [window(TEN, 2)], 2), (2, [window(TEN, 3)], 1), (3, WHOLE, 0)):
        lake.fill(end, *rows)
        assert lake.verified() == (result_of("activity", len(rows), behind),)


def test_nothing_is_said_where_no_product_is_declared(lake: GoldLake) -> None:
    assert lake.verified() == ()
    lake.catalog.drop_namespace("gold")
    assert lake.verified() == ()
    lake.catalog.create_namespace("gold")


@pytest.mark.parametrize("text", [ACTIVITY, pytest.param(FINAL, marks=pytest.mark.long)])
def test_a_table_that_does_not_exist_is_not_filled_yet_or_was_lost(tmp_path: Path, text: str) -> None:
    own_lake = lake_in(tmp_path)
    (own_lake.settings.gold / "activity.yaml").write_text(text)
    not_filled = result_of("activity", behind=4, exists=False)
    own_lake.catalog.drop_namespace("gold")
    assert own_lake.verified() == (not_filled,)
    with lease(own_lake.settings.state.database, gold_lease("activity")):  # its consumer has just started
        assert own_lake.verified() == (not_filled,)
    lost = (
        "gold.activity does not exist, but a consumer has run its query. Run `consumer rebuild gold activity`, to fill "
        "it again from silver."
    )
    assert own_lake.verified() == (replace(not_filled, problems=(lost,)),)
    own_lake.edit(KEPT, lambda _: [])
    assert own_lake.verified() == ()  # silver is empty, so nothing is missing
    own_lake.catalog.drop_table(KEPT)
    assert own_lake.verified() == (result_of("activity", exists=False, problems=(lost,)),)
    own_lake.edit(BRONZE, lambda _: [])  # the consumer may have ended before it created any table
    assert own_lake.verified() == ()


def test_a_fault_is_found_in_the_table_that_has_it(lake: GoldLake) -> None:
    for name in ("activity", "other"):
        lake.create(name=name)
        lake.fill(3, *WHOLE, name=name)
    lake.edit("gold.other", lambda rows: [row | {"events": row["events"] + 1} for row in rows[:1]])
    example = '2026-01-01 10:00:00+00, user_id "a": has 4, expected 3'
    assert lake.verified() == (
        CLEAN,
        result_of(
            "other",
            2,
            findings=(
                Finding("gold.other", "missing", 1, ('2026-01-01 11:00:00+00, user_id "a"',)),
                Finding("gold.other", "wrong events", 1, (example,)),
            ),
        ),
    )


def test_a_row_that_silver_lost_is_a_fault_of_gold(own_lake: GoldLake) -> None:
    own_lake.create()
    own_lake.fill(3, *WHOLE)
    own_lake.edit(KEPT, lambda rows: [row for row in rows if row["event_id"] != "new"])
    (found,) = own_lake.verified()
    assert [(each.what, each.rows) for each in found.findings] == [("not expected", 1)]


@pytest.mark.all
def test_maintenance_changes_nothing(own_lake: GoldLake) -> None:
    own_lake.create()
    own_lake.fill(3, *WHOLE)
    for name in (KEPT, TABLE):
        own_lake.edit(name, lambda rows: rows[::-1])
    assert own_lake.verified() == (CLEAN,)


@pytest.mark.all
def test_a_micro_batch_that_is_committed_meanwhile_is_no_fault(lake: GoldLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create()
    lake.fill(2, window(TEN, 3))
    compare = gold_module.compare_gold

    def commit(*arguments: Any) -> int:
        lake.fill(3, *WHOLE)
        return compare(*arguments)

    monkeypatch.setattr(gold_module, "compare_gold", commit)
    assert lake.verified() == (result_of("activity", 1, 1),)
    assert lake.verified() == (CLEAN,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("keys: [user_id]", "keys: [user_id, event_type]"),
        ("size: 1 hour", "size: 2 hours"),
        ("count(*)", "count(product_id)"),
        ("max(event_timestamp)\n", "max(event_timestamp)\npublish: final\n"),
    ],
)
@pytest.mark.parametrize("without", first_by_default([None, PRODUCT]))
def test_a_table_of_another_product(lake: GoldLake, old: str, new: str, without: str | None) -> None:
    lake.create()
    lake.fill(3, *WHOLE)
    if without:
        with lake.catalog.load_table(TABLE).transaction() as transaction:
            transaction.remove_properties(without)
    assert old in ACTIVITY
    lake.write_product(ACTIVITY.replace(old, new))
    text = "gold.activity was filled with other keys, windows or measures than activity.yaml has. Restore the file. "
    assert lake.problem() == f"{text}Or: Run `consumer rebuild gold activity`, to fill it again from silver."


def test_a_number_that_changes_the_type_of_a_measure_makes_another_product(lake: GoldLake) -> None:
    viewed = "  viewed: sum(CASE WHEN event_type = 'page_view' THEN {} END)\n"
    before = lake.create(ACTIVITY + viewed.format(1))
    now = lake.write_product(ACTIVITY + viewed.format("1.00"))
    assert now.digest == before.digest
    text = "gold.activity was filled with other keys, windows or measures than activity.yaml has. Restore the file. "
    assert lake.problem() == f"{text}Or: Run `consumer rebuild gold activity`, to fill it again from silver."


def test_a_product_whose_file_only_looks_different_is_the_same(lake: GoldLake) -> None:
    lake.create()
    lake.fill(3, *WHOLE)
    lake.write_product(ACTIVITY.replace("count(*)", "COUNT( * )") + "description: Who does what.\n")
    assert lake.verified() == (CLEAN,)


@pytest.mark.all
def test_a_table_of_another_silver(own_lake: GoldLake) -> None:
    own_lake.create()
    own_lake.fill(3, *WHOLE)
    rows = own_lake.rows(KEPT)
    schema = own_lake.catalog.load_table(KEPT).schema()
    own_lake.catalog.drop_table(KEPT)
    assert own_lake.problem().startswith("gold.activity was filled from silver.events, which does not exist.")
    own_lake.catalog.create_table(KEPT, schema)
    own_lake.append(KEPT, *rows)
    own_lake.mark(KEPT, 0, 3)
    assert own_lake.problem().startswith("gold.activity was filled from another silver.events, which was replaced")


@pytest.mark.all
def test_a_table_that_is_ahead_of_silver(own_lake: GoldLake) -> None:
    own_lake.create()
    own_lake.fill(3, *WHOLE)
    own_lake.mark(KEPT, 0, 2)
    text = "gold.activity has the micro-batches before 3, but silver.events those before 2: they are from different"
    assert own_lake.problem().startswith(text)


def test_rows_without_a_marker(lake: GoldLake) -> None:
    lake.create()
    lake.append(TABLE, *WHOLE)
    assert lake.problem().startswith("gold.activity has rows, but its marker was removed.")
    lake.edit(TABLE, lambda _: [])
    assert lake.verified() == (result_of("activity", 0, 4),)


def test_a_marker_whose_property_was_removed_is_still_in_its_snapshot(lake: GoldLake) -> None:
    lake.create()
    lake.fill(2, window(TEN, 3))
    table = lake.catalog.load_table(TABLE)
    key = property_of("gold-activity")
    marker = table.properties[key]
    with table.transaction() as transaction:
        transaction.remove_properties(key)
    arrow = table.schema().as_arrow()
    table.append(pa.Table.from_pylist([], schema=arrow), snapshot_properties={key: marker})
    lake.edit(TABLE, lambda rows: rows[::-1])
    assert lake.verified() == (result_of("activity", 1, 1),)


@pytest.mark.parametrize("column", first_by_default(["window_end", "user_id", "newest"]))
def test_a_column_that_was_dropped(lake: GoldLake, column: str) -> None:
    lake.create()
    lake.fill(3, *WHOLE)
    with lake.catalog.load_table(TABLE).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(column)
    assert lake.problem().startswith(f"gold.activity has no column {column}. Run `consumer rebuild")


def test_a_column_that_was_added_is_nobodys_business(lake: GoldLake) -> None:
    from pyiceberg.types import StringType

    lake.create()
    lake.fill(3, *WHOLE)
    with lake.catalog.load_table(TABLE).update_schema() as update:
        update.add_column("remark", StringType())
    assert lake.verified() == (CLEAN,)


def test_a_table_whose_file_is_missing(lake: GoldLake) -> None:
    lake.create()
    lake.fill(3, *WHOLE)
    path = lake.settings.gold / "activity.yaml"
    path.unlink()
    assert lake.problem() == (
        f"gold.activity was filled from silver.events, but {path} does not exist. Restore the file, set LAKE_GOLD, or "
        "drop the table."
    )


def test_a_table_that_is_being_rebuilt_is_left_alone(lake: GoldLake) -> None:
    suffix = new_suffix()
    assert suffix.startswith(REBUILDING)
    lake.create()
    lake.fill(3, *WHOLE)
    lake.create(name=f"activity{suffix}")
    (lake.settings.gold / f"activity{suffix}.yaml").unlink()
    assert lake.verified() == (CLEAN,)


def test_a_table_of_something_else_is_left_alone(lake: GoldLake) -> None:
    lake.create()
    (lake.settings.gold / "activity.yaml").unlink()
    assert lake.verified() == ()  # without a marker, its purpose is unknown


def test_a_product_that_is_broken(lake: GoldLake) -> None:
    lake.create()
    (lake.settings.gold / "activity.yaml").write_text(ACTIVITY.replace("count(*)", "avg(user_id)"))
    with pytest.raises(LakeproofError, match=r"activity\.yaml:6:11: measures\.events: invalid measure"):
        lake.verified()


@pytest.fixture
def closing(tmp_path: Path) -> GoldLake:
    """A silver whose horizon passes a window."""
    lake = GoldLake(settings_in(tmp_path), CLOSING)
    lake.decide(0, 3)
    lake.create(FINAL)
    return lake


def test_a_final_window_is_expected_once_the_horizon_has_passed_it(closing: GoldLake) -> None:
    assert closing.verified() == (result_of("activity", 0, 1),)
    old = window(OLD, 1, newest=OLD + HOUR / 2)
    closing.fill(2, horizon=datetime(2025, 12, 25, 10, tzinfo=UTC))
    assert closing.verified() == (result_of("activity", 0, 1),)
    passed = datetime(2025, 12, 25, 11, 30, tzinfo=UTC)
    closing.fill(3, old, horizon=passed)
    assert closing.verified() == (result_of("activity", 1, 0),)
    closing.decide(3, 4)  # the horizon passes no other window
    assert closing.verified() == (result_of("activity", 1, 0),)
    closing.fill(3, horizon=passed)
    ((finding,),) = [found.findings for found in closing.verified()]
    assert (finding.what, finding.details) == ("missing", ('2025-12-25 10:00:00+00, user_id "a"',))
    closing.fill(3, old, window(TEN, 1), horizon=passed)
    ((finding,),) = [found.findings for found in closing.verified()]
    assert (finding.what, finding.rows) == ("not expected", 1)


@pytest.mark.all
def test_a_final_product_with_another_horizon(closing: GoldLake) -> None:
    wrong = datetime(2025, 12, 25, 12, tzinfo=UTC)
    closing.fill(3, window(OLD, 1, newest=OLD + HOUR / 2), horizon=wrong)
    (found,) = closing.verified()
    assert (found.facts["windows"], found.findings) == (1, ())
    assert found.problems == (
        "gold.activity has the windows that end by 2025-12-25 12:00:00+00, according to its marker, but the horizon "
        "was 2025-12-25 11:30:00+00. Run `consumer rebuild gold activity`, to fill it again from silver.",
    )


def test_without_any_event_nothing_is_final(tmp_path: Path) -> None:
    lake = GoldLake(settings_in(tmp_path), [])
    lake.decide(0, 1)
    lake.create(FINAL)
    assert lake.verified() == (result_of("activity", 0, 0),)


Verify = Callable[[GoldLake], tuple[int, dict[str, Any]]]


@pytest.fixture
def verify(reader_environment: Callable[[Settings], dict[str, str]]) -> Verify:
    def run(lake: GoldLake) -> tuple[int, dict[str, Any]]:
        """Return the exit code and the report."""
        environment = reader_environment(lake.settings) | {"LAKE_GOLD": str(lake.settings.gold)}
        done = CliRunner().invoke(app, ["verify", "--format", "json"], env=environment, catch_exceptions=False)
        report = json.loads(done.stdout)
        assert report["clean"] == (done.exit_code == 0)
        return done.exit_code, report["streams"][0]

    return run


@pytest.mark.all
def test_the_report(
    lake: GoldLake, verify: Verify, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from reader.verify.driver import verify as verify_streams
    from reader.verify.report import ReportFormat, write_report

    def printed() -> str:
        write_report(verify_streams(lake.settings, "events"), ReportFormat.TABLE, sys.stdout)
        return capsys.readouterr().out

    monkeypatch.setenv("COLUMNS", "200")
    lake.create()
    lake.fill(2, window(TEN, 3))
    code, report = verify(lake)
    gold = {"product": "activity", "exists": True, "windows": 1, "behind": 1, "problems": [], "findings": []}
    assert (code, report["gold"]) == (0, [gold])
    out = printed()
    assert re.search(r"│ events │ activity │ +1 │ +1 │", out)
    assert "Nothing is lost or doubled so far. gold.activity is behind by 1 row of silver." in out
    lake.fill(3, *WHOLE)
    assert verify(lake) == (0, report | {"gold": [gold | {"windows": 2, "behind": 0}]})
    lake.write_product(ACTIVITY, "other")
    code, report = verify(lake)
    absent = {"product": "other", "exists": False, "windows": 0, "behind": 4, "problems": [], "findings": []}
    assert (code, report["gold"][1]) == (0, absent)
    assert "so far. gold.other does not exist yet: `consumer run events` fills it.\n" in printed()
    (lake.settings.gold / "other.yaml").unlink()
    assert "has its verdict in silver. Each window of gold agrees with silver." in printed()
    lake.fill(3, WHOLE[0])
    code, report = verify(lake)
    example = '2026-01-01 11:00:00+00, user_id "a"'
    finding = {"table": TABLE, "finding": "missing", "rows": 1, "examples": [example]}
    assert (code, report["gold"][0]["findings"]) == (1, [finding])
    out = printed()
    assert "events: tables of gold with problems" in out
    assert f"│ gold.activity │ missing │    1 │ {example} │" in out
    assert "Not clean: gold is not what silver makes it (see above)." in out
    lake.write_product(ACTIVITY.replace("1 hour", "2 hours"))
    code, report = verify(lake)
    assert code == 1
    assert report["gold"][0]["problems"][0].startswith("gold.activity was filled with other keys")
    assert "events: gold.activity was filled with other keys" in printed()


@pytest.mark.all
def test_a_broken_product_is_one_line(lake: GoldLake, reader_environment: Callable[[Settings], dict[str, str]]) -> None:
    lake.create()
    (lake.settings.gold / "activity.yaml").write_text("name: activity\nsilver: events\n")
    done = subprocess.run(
        [*forked("reader"), "verify"],
        env=reader_environment(lake.settings) | {"LAKE_GOLD": str(lake.settings.gold)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"Error: Could not check\. .*activity\.yaml:1:1: missing key keys\. \(1 of 3 errors\)\n"
        r"  See docs/gold\.md .*\n",
        done.stderr,
    )


def test_the_summary_shows_gold(lake: GoldLake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.write_product(ACTIVITY)
    print_summary(lake.settings, "events")
    assert "Gold" not in capsys.readouterr().out
    lake.create()
    lake.create(name="empty")
    lake.fill(3, *WHOLE)
    print_summary(lake.settings, "events")
    out = capsys.readouterr().out
    assert "Gold: data products" in out
    shown = r"│ activity +│ +2 │ 2026-01-01 10:00:00\+00 │ 2026-01-01 11:00:00\+00 │"
    assert re.search(shown, out)
    assert re.search(r"│ empty +│ +0 │ none +│ none +│", out)
