"""Silver in the tables of a lake: markers, micro-batches in progress or waiting, and output of verify and summary."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

import pytest
from tests.lakes import changed, embedded
from tests.reader.lake import Run, rows
from tests.reader.verify.lake import BRONZE, Lake, restored
from tests.reader.verify.silver.lakes import LANDED, TABLES, SilverLake
from tests.reader.verify.silver.tables import CONFLICTS, KEPT, LATE, LEDGER
from tests.selection import first_by_default, only_with_all
from typer.testing import CliRunner

from lakeproof.catalog import open_catalog
from lakeproof.history.apply import adopt
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import lease, silver_lease
from reader.cli import app
from reader.connect import connect
from reader.summary import print_summary
from reader.verify import report as report_module
from reader.verify.check import Result, Verification
from reader.verify.checks import silver as silver_module
from reader.verify.report import ReportFormat, write_report

CONTRACT = Path(__file__).parents[4] / "contracts" / "events.yaml"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SilverLake:
    home = tmp_path_factory.mktemp("silver") / "lake"
    return SilverLake(embedded(home))


@pytest.fixture
def lake(shared: SilverLake) -> Iterator[SilverLake]:
    """A lake whose tables and landed files are put back after the test."""
    with restored(shared):
        yield shared


@pytest.fixture
def own_lake(lake_settings: Settings) -> SilverLake:
    """A lake of the same content for one test, which needs a state database."""
    return SilverLake(lake_settings)


class Verify:
    """Runs verify; keeps the report for people on the same verification."""

    def __init__(self, environment: Callable[[Settings], dict[str, str]]) -> None:
        self._environment = environment
        self.shown = ""

    def __call__(self, lake: Lake) -> tuple[int, dict[str, Any]]:
        """Return the exit code, and the report on silver."""
        command, environment = ["verify", "--format", "json"], self._environment(lake.settings)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(report_module, "write_report", self._write)
            done = CliRunner().invoke(app, command, env=environment, catch_exceptions=False)
        report = json.loads(done.stdout)
        assert report["clean"] == (done.exit_code == 0)
        [stream] = report["streams"]
        return done.exit_code, stream["silver"]

    def _write(self, verifications: Sequence[Verification], report_format: ReportFormat, out: TextIO) -> None:
        write_report(verifications, report_format, out)
        with redirect_stdout(StringIO()) as shown:
            write_report(verifications, ReportFormat.TABLE, shown)
        self.shown = shown.getvalue()


@pytest.fixture
def verify(reader_environment: Callable[[Settings], dict[str, str]]) -> Verify:
    return Verify(reader_environment)


WHOLE = {"kept": 4, "duplicates": 1, "conflicts": 1, "late": 1}


def test_all_is_decided(lake: SilverLake, verify: Verify, reader: Run) -> None:
    lake.decide(0, 2)
    lake.decide(2, 3)
    assert verify(lake) == (0, {"verdicts": WHOLE, "exists": True, "undecided": 0, "problems": [], "findings": []})
    done = reader(lake.settings, "verify")
    assert re.search(r"│ events │ +4 │ +1 │ +1 │ +1 │ +0 │", done.stdout)
    assert "exactly one table, once. Each row of bronze has its verdict in silver." in done.stdout


def test_nothing_is_said_where_no_silver_is_declared(lake_settings: Settings, tmp_path: Path, verify: Verify) -> None:
    lake = Lake(without_key(lake_settings, tmp_path))
    lake.land({"a.json": LANDED[0]})
    lake.consume()
    assert verify(lake) == (0, None)


def without_key(settings: Settings, folder: Path) -> Settings:
    """Return settings of a lake whose contract has no primary key, and so no silver."""
    text = CONTRACT.read_text()
    (folder / "events.yaml").write_text(re.sub(r"(?m)^ +(primaryKey.*|- property: silver.*\n +value.*)\n", "", text))
    return changed(settings, LAKE_CONTRACTS=folder)


NOT_FILLED = {"verdicts": dict.fromkeys(WHOLE, 0), "exists": False, "undecided": 7, "problems": [], "findings": []}


def test_silver_that_has_not_been_filled_yet_is_not_clean(own_lake: SilverLake, verify: Verify) -> None:
    for name in TABLES:
        own_lake.catalog.drop_table(name)
    assert verify(own_lake) == (0, NOT_FILLED)
    with lease(own_lake.settings.state.database, silver_lease("events")):  # its consumer has just started
        assert verify(own_lake) == (0, NOT_FILLED)
    own_lake.edit(BRONZE, lambda _: [])
    assert verify(own_lake)[1] is None
    assert "silver" not in verify.shown


@pytest.mark.all
def test_silver_that_was_lost_is_a_problem(own_lake: SilverLake, verify: Verify) -> None:
    own_lake.decide(0, 3)
    with lease(own_lake.settings.state.database, silver_lease("events")):
        pass
    for name in TABLES:
        own_lake.catalog.drop_table(name)
    problem = (
        "silver.events does not exist, but a consumer has run its query. Run `consumer rebuild silver events`, to fill "
        "silver again from bronze."
    )
    assert verify(own_lake) == (1, NOT_FILLED | {"problems": [problem]})
    assert f"events: {problem}" in verify.shown
    assert "Not clean: silver is not what bronze makes it (see above)." in verify.shown


@pytest.mark.parametrize(
    ("end", "waiting"), first_by_default([(2, "2 rows of bronze are"), (0, "7 rows of bronze are")])
)
def test_rows_that_are_not_decided_yet_are_no_fault(lake: SilverLake, verify: Verify, end: int, waiting: str) -> None:
    if end:
        lake.decide(0, end)
    lake.land({"pending.json": LANDED[0]})
    exit_code, silver = verify(lake)
    assert (exit_code, silver["undecided"], silver["findings"]) == (0, int(waiting[0]), [])
    text = f"Nothing is lost or doubled so far. 1 file is not consumed yet. {waiting} not decided in silver yet."
    assert text in verify.shown


@pytest.mark.parametrize(
    "names", [pytest.param(TABLES[:1], marks=pytest.mark.long), only_with_all(TABLES[:2]), TABLES[:3]]
)
def test_a_micro_batch_in_progress_is_no_fault(lake: SilverLake, verify: Verify, names: tuple[str, ...]) -> None:
    lake.decide(0, 1)
    lake.decide(1, 3, names)
    exit_code, silver = verify(lake)
    assert (exit_code, silver["undecided"], silver["findings"], silver["problems"]) == (0, 5, [], [])


def test_a_micro_batch_that_is_committed_meanwhile_is_no_fault(
    lake: SilverLake, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.decide(0, 2)
    compare = silver_module.compare_silver
    ends = []

    def commit(*arguments: Any) -> Result:
        found = compare(*arguments)
        lake.decide(2, 3)
        ends.append(3)
        return found

    monkeypatch.setattr(silver_module, "compare_silver", commit)
    exit_code, silver = verify(lake)
    assert (exit_code, silver["undecided"], silver["findings"], ends) == (0, 2, [], [3])


@pytest.mark.parametrize("name", [only_with_all(name) if name in (LATE, CONFLICTS) else name for name in TABLES])
def test_rows_beyond_the_marker_of_their_table_are_a_fault(lake: SilverLake, verify: Verify, name: str) -> None:
    lake.decide(0, 2)
    column = "micro_batch_id" if name == LEDGER else "_micro_batch_id"
    lake.append(name, lake.rows(name)[0] | {column: 2} if lake.rows(name) else lake.rows(BRONZE)[-1] | {column: 2})
    exit_code, silver = verify(lake)
    [finding] = silver["findings"]
    assert exit_code == 1
    assert finding == {
        "table": name,
        "finding": "in a micro-batch that was not decided",
        "rows": 1,
        "examples": ["micro-batch 2: 1 rows"],
    }


def test_a_table_that_is_behind_silver_is_a_fault(lake: SilverLake, verify: Verify) -> None:
    lake.decide(0, 3)
    lake.mark(LATE, 0, 2)
    exit_code, silver = verify(lake)
    assert (exit_code, silver["findings"]) == (1, [])
    [problem] = silver["problems"]
    assert problem.startswith("silver.events_late has the micro-batches before 2, but silver.events those before 3")
    assert f"events: {problem}" in verify.shown


def test_a_fault_is_shown_with_its_examples(lake: SilverLake, verify: Verify) -> None:
    lake.decide(0, 3)
    lake.edit(KEPT, lambda rows: [row for row in rows if row["event_id"] != "y"])
    lake.edit(CONFLICTS, lambda rows: [row | {"_winner_position": 1} for row in rows])
    exit_code, silver = verify(lake)
    assert exit_code == 1
    assert silver["findings"] == [
        {"table": KEPT, "finding": "missing: should be kept", "rows": 1, "examples": ["0.json, position 1"]},
        {
            "table": CONFLICTS,
            "finding": "wrong winner",
            "rows": 1,
            "examples": ["1.json, position 1: points to 0.json, position 1, expected 0.json, position 0"],
        },
    ]
    assert "│ missing: should be kept │    1 │ 0.json, position 1 " in verify.shown
    assert "Not clean: silver is not what bronze makes it (see above)." in verify.shown
    lake.edit(BRONZE, lambda rows: rows[1:])
    assert verify(lake)[0] == 1
    assert "Not clean: some units are lost, doubled or changed, and silver is not what bronze makes it" in verify.shown


@pytest.mark.all
def test_maintenance_changes_nothing(lake: SilverLake, verify: Verify) -> None:
    lake.decide(0, 2)
    for name in (BRONZE, *TABLES):
        lake.edit(name, lambda rows: rows[::-1])
    lake.decide(2, 3)
    assert verify(lake)[0] == 0


@pytest.mark.all
def test_a_silver_table_that_is_gone(own_lake: SilverLake, verify: Verify, reader: Run) -> None:
    own_lake.decide(0, 3)
    own_lake.catalog.drop_table(LATE)
    exit_code, silver = verify(own_lake)
    assert exit_code == 1
    assert silver["problems"] == [
        "silver.events_late does not exist, but the other silver tables do. Run `consumer rebuild silver events`, to "
        "fill silver again from bronze."
    ]
    with lease(own_lake.settings.state.database, silver_lease("events")):  # rebuilt tables are being put in place
        done = reader(own_lake.settings, "verify")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Could not check. The table silver.events_late of the stream events does not exist yet." in done.stderr


@pytest.mark.all
def test_the_contract_is_the_one_that_silver_was_filled_under(
    lake_settings: Settings, tmp_path: Path, verify: Verify, reader: Run
) -> None:
    folder = tmp_path / "contracts"
    folder.mkdir()
    file = folder / "events.yaml"
    file.write_bytes(CONTRACT.read_bytes())
    settings = changed(lake_settings, LAKE_CONTRACTS=folder)
    adopt(open_catalog(settings), settings, "events", ContractLog(settings.state.database))
    lake = SilverLake(settings)
    lake.decide(0, 3)
    event_time = "  - property: eventTime\n"
    file.write_text(
        file.read_text().replace(event_time, f"  - {{property: silverHorizon, value: unbounded}}\n{event_time}")
    )
    assert verify(lake)[0] == 0
    lake.catalog.drop_table("ops.schema_changes")
    done = reader(settings, "verify")
    assert done.returncode == 2
    assert "The lake has no record of the contract" in done.stderr


def test_the_summary_shows_silver(lake: SilverLake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.decide(0, 2)
    print_summary(lake.settings, "events")
    out = capsys.readouterr().out
    assert "Silver: silver.events" in out
    assert re.search(r"│ 3 +│ 1 +│ 1 +│ 0 +│ 2 +│", out)


def test_sql_and_tables_show_silver(lake: SilverLake, reader: Run) -> None:
    lake.decide(0, 3)
    with connect(lake.settings) as session:
        assert rows(session, "SELECT count(*) FROM silver.events") == [(4,)]
        assert rows(session, "SELECT _winner_source, _winner_position FROM silver.events_conflicts") == [("0.json", 0)]
        assert rows(session, "SELECT _horizon::VARCHAR FROM silver.events_late") == [("2025-12-25 10:00:00+00",)]
        assert rows(session, "SELECT sum(duplicates)::BIGINT FROM ledger.events_silver") == [(1,)]
        shown = rows(session, "SELECT schema || '.' || name FROM (SHOW ALL TABLES) WHERE database = 'lake'")
        assert {name for (name,) in shown} >= set(TABLES)
        assert ("_content_hash", "BLOB") in [row[:2] for row in rows(session, "DESCRIBE silver.events")]
    listed = {
        row["name"]: row["rows"] for row in json.loads(reader(lake.settings, "tables", "--format", "json").stdout)
    }
    assert [listed[name] for name in TABLES] == [1, 1, 3, 4]
