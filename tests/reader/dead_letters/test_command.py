"""``reader dead-letters``: counts, output and export."""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lakes import embedded
from tests.reader.lake import Append, Run
from tests.reader.verify.lake import Lake, restored
from tests.reader.verify.replays import TABLES, Replayer
from tests.selection import first_by_default

from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings
from lakeproof.tables.schemas import ensure_message_columns, ensure_tables


def event(number: int, **changes: object) -> bytes:
    record = {"user_id": "u", "event_id": f"e{number}", "event_timestamp": "2026-11-21T12:30:00Z"}
    return json.dumps(record | {"event_type": "refund"} | changes).encode()


def array(*records: bytes) -> bytes:
    return b"[" + b", ".join(records) + b"]"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    home = tmp_path_factory.mktemp("letters") / "lake"
    made = Lake(embedded(home))
    made.land({"a.json": array(event(0), event(1), event(2, user_id=1)), "b.json": array(b'{"user_id": NaN}')})
    made.land({"cut.json": b'[{"x": "\x1b[2J\xff'})
    made.consume()
    return made


@pytest.fixture
def lake(shared: Lake) -> Iterator[Lake]:
    """Three refunds, one of which also has a wrong type; a record that is not JSON; a truncated batch.

    Its tables and landed files are put back after the test; exports stay.
    """
    with restored(shared):
        yield shared


@pytest.fixture
def replayed(lake: Lake, tmp_path: Path) -> Lake:
    """The lake after a replay: two refunds are closed, one is open, and the record that is not JSON is parked."""
    replayer = Replayer(lake.settings, tmp_path / "today")
    replayer.replay(lambda letter: letter["_source"] == "a.json")
    replayer.replay(lambda letter: letter["_source"] == "b.json", most=1)
    return lake


def test_reasons_times_sources_and_examples(lake: Lake, reader: Run) -> None:
    done = reader(lake.settings, "dead-letters", "events")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Dead letters of events: 5 open · 0 parked · 0 closed" in done.stdout
    row = r"not_allowed +│ \$\.event_type +│ +3 │ 2026-01-01 12:00:00 │ 2026-01-01 12:00:00 │ █"
    assert re.search(row, done.stdout)
    assert re.search(r"│ a\.json +│ +3 │", done.stdout)
    assert "a dead letter with several reasons is in several rows" in done.stdout
    lines = done.stdout.splitlines()
    (carets,) = [number for number, line in enumerate(lines) if line.strip() == "^" * len('"event_type": "refund"')]
    at = lines[carets].index("^")
    assert lines[carets - 1][at:].startswith('"event_type": "refund"')
    assert "\x1b" not in done.stdout
    assert r"\x1b[2J\xFF" in done.stdout


def test_states_and_conditions(replayed: Lake, reader: Run) -> None:
    def asked(*arguments: str) -> tuple[int, dict[str, int]]:
        done = reader(replayed.settings, "dead-letters", "events", "--format", "json", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)
        return found["dead_letters"], found["states"]

    states = {"open": 2, "parked": 1, "closed": 2}
    assert asked() == (3, states)
    for state, letters in states.items():
        assert asked("--state", state) == (letters, states)
    assert asked("--state", "open", "--state", "closed") == (4, states)
    assert asked("--where", "list_contains(codes, 'wrong_type')") == (1, {"open": 1, "parked": 0, "closed": 0})
    assert asked("--state", "closed", "--where", "attempts = 1 AND raw LIKE '%e1%'")[0] == 1
    assert asked("--where", "_source = 'a.json' -- and no more")[1] == {"open": 1, "parked": 0, "closed": 2}
    assert asked("--where", "false") == (0, {"open": 0, "parked": 0, "closed": 0})
    done = reader(replayed.settings, "dead-letters", "events", "--where", "false")
    assert "None of them is open or parked." in done.stdout


def test_json_and_csv(lake: Lake, reader: Run) -> None:
    found = json.loads(reader(lake.settings, "dead-letters", "events", "--format", "json").stdout)
    (refund,) = [each for each in found["reasons"] if each["reason"] == "not_allowed"]
    assert refund["hours"] == [{"hour": "2026-01-01T12:00:00+00:00", "dead_letters": 3}]
    example = refund["example"]
    assert (example["source"], example["position"], example["offending"]) == ("a.json", 0, '"event_type": "refund"')
    raw = example["raw"]
    assert raw[example["offset"] :].startswith('"event_type"')
    assert found["sources"][0] == {"source": "a.json", "dead_letters": 3}
    assert found["keys"] == []
    (cut,) = [each for each in found["reasons"] if each["reason"] == "corrupt_batch"]
    assert cut["example"]["raw"].endswith("\x1b[2J\\xff")
    rows = list(csv.DictReader(io.StringIO(reader(lake.settings, "dead-letters", "events", "--format", "csv").stdout)))
    assert {(row["reason"], row["dead_letters"]) for row in rows} >= {("not_allowed", "3"), ("wrong_type", "1")}


@pytest.mark.parametrize(
    "condition", first_by_default(["no_column = 1", "true) UNION SELECT (1", "1 +", "_source", "codes = "])
)
def test_a_condition_that_does_not_work_is_a_mistake_in_the_command(lake: Lake, reader: Run, condition: str) -> None:
    done = reader(lake.settings, "dead-letters", "events", "--where", condition)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: --where does not work.")
    assert "Traceback" not in done.stderr


def test_keys_of_messages(lake_settings: Settings, reader: Run) -> None:
    catalog = open_catalog(lake_settings)
    lake = Lake(lake_settings)
    ensure_message_columns(catalog, "events")
    letter = {"reasons": [{"code": "null_field", "path": "$.user_id", "detail": "required"}], "raw": b"{}"}
    keys = [b"k\x1b", b"k\x1b", b"\xff", None]
    rows = [letter | {"_source": f"t/0/{at:019}", "_position": 0, "_key": key} for at, key in enumerate(keys)]
    lake.append(TABLES.dead_letters, *rows)
    shown = reader(lake_settings, "dead-letters", "events").stdout
    assert re.search(r"│ k\\x1b │ +2 │", shown)
    assert re.search(r"│ \\xFF +│ +1 │", shown)
    assert "unknown" in shown  # neither a landing time nor an ingestion time
    found = json.loads(reader(lake_settings, "dead-letters", "events", "--format", "json").stdout)
    assert found["keys"] == [{"key": "k\x1b", "dead_letters": 2}, {"key": "\\xff", "dead_letters": 1}]


@pytest.mark.all
def test_tables_without_rows_and_no_tables(lake_settings: Settings, reader: Run) -> None:
    done = reader(lake_settings, "dead-letters", "events")
    assert (done.returncode, done.stdout) == (3, "")
    assert "dead_letters.events does not exist yet" in done.stderr
    assert not list(lake_settings.home.glob("**/*.db")), "a look creates no catalog"
    done = reader(lake_settings, "dead-letters", "nothing")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    for form in ("table", "json", "csv"):
        done = reader(lake_settings, "dead-letters", "events", "--format", form)
        assert (done.returncode, done.stderr) == (0, "")
    done = reader(lake_settings, "dead-letters", "events", "--export", "none.jsonl")
    assert (done.returncode, done.stdout) == (0, "Wrote 0 dead letters to none.jsonl\n")


def test_lines_are_written_back_byte_for_byte(lake: Lake, reader: Run) -> None:
    arguments = ("dead-letters", "events", "--export", "out/letters.jsonl", "--where", "_source <> 'cut.json'")
    done = reader(lake.settings, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Wrote 4 dead letters to out/letters.jsonl\n"
    content = (lake.settings.home / "out" / "letters.jsonl").read_bytes()
    assert content.splitlines() == [event(0), event(1), event(2, user_id=1), b'{"user_id": NaN}']
    again = reader(lake.settings, *arguments)
    assert again.returncode == 2
    assert "already exists" in again.stderr
    assert [path.name for path in (lake.settings.home / "out").iterdir()] == ["letters.jsonl"]


@pytest.mark.all
def test_what_is_no_line_needs_a_folder(lake: Lake, reader: Run) -> None:
    raws = {"pretty.json": b'[\n{"x":\r\n1}\n', "nul.json": b"\x00\xff\n", "empty.json": b""}
    lake.land(raws)
    lake.consume(micro_batch=1)
    done = reader(lake.settings, "dead-letters", "events", "--export", "letters")
    assert done.returncode == 1
    assert "3 dead letters of 8 cannot be a line" in done.stderr
    assert "--export letters/" in done.stderr
    assert not any("letters" in path.name for path in lake.settings.home.iterdir() if path.is_file())
    assert reader(lake.settings, "dead-letters", "events", "--export", "letters/").returncode == 0
    folder = lake.settings.home / "letters"
    index = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    assert len(index) == 8
    found = {each["source"]: (folder / each["file"]).read_bytes() for each in index}
    assert raws.items() <= found.items()
    again = reader(lake.settings, "dead-letters", "events", "--export", "letters")
    assert again.returncode == 2
    assert "is not an empty folder" in again.stderr


def test_what_has_no_bytes_is_told(lake: Lake, reader: Run, bury: Append) -> None:
    lake.append(
        TABLES.dead_letters,
        {"reasons": [{"code": "batch_too_large", "path": "$", "detail": ""}], "_source": "../../big", "_position": 0},
    )
    done = reader(lake.settings, "dead-letters", "events", "--export", "all/")
    assert done.returncode == 0
    assert "1 dead letter too large or gone when read" in done.stderr
    assert "its bytes were not kept" in reader(lake.settings, "dead-letters", "events").stdout


@pytest.mark.all
def test_a_place_that_cannot_be_written(lake: Lake, reader: Run) -> None:
    for target in ("/proc/nothing/letters.jsonl", "/proc/nothing/"):
        done = reader(lake.settings, "dead-letters", "events", "--export", target)
        assert done.returncode == 1
        assert f"Cannot write to {target.rstrip('/')}" in done.stderr
        assert "Traceback" not in done.stderr
