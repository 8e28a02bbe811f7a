"""The summary of a stream, and waiting for its first rows."""

import json
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import changed
from tests.reader.lake import Append
from tests.reader.verify.lake import Lake
from tests.reader.verify.replays import Replayer

from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.samples_file import load_all_samples
from lakeproof.settings import Settings
from lakeproof.storage import open_storage
from lakeproof.tables.names import samples_tables, silver_tables
from lakeproof.tables.schemas import ensure_samples_tables, ensure_silver_tables, ensure_tables
from reader import summary
from reader.summary import print_summary, wait_for_rows

ROOT = Path(__file__).parents[2]


def test_it_says_what_landed_and_why_what_did_not(lake: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    wait_for_rows(lake, "events", 0)
    print_summary(lake, "events")
    out = capsys.readouterr().out
    assert re.search(r"│ 3 +│ 1 +│ 1 +│ 2026-01-01 12:00:00\+00 │ 2026-01-01 14:00:00\+00 │", out)
    assert re.search(r"│ missing_field +│ \$\.event_id +│ +2 │ required +│", out)
    assert re.search(r"│ invalid_utf8 +│ \$ +│ +1 │ byte 13 +│", out)
    assert re.search(r"│ unknown_field +│ \$\.x +│ +1 │ not in the contract", out)
    assert re.search(r"│ total +│ +│ +3 │", out)
    assert "a dead letter with several reasons is in several rows" in out
    for command in ("make page", "make duckdb", 'reader sql "select', "make consumer-logs", "make stop"):
        assert command in out


def test_dead_letters_are_counted_by_path_without_indexes_and_the_rest_is_counted(
    lake_settings: Settings, bury: Append, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    of_items = [("wrong_type", f"$.items[{index}].qty", "got \u202etxt\x1b[31m") for index in range(3)]
    rare = [(b"{}", [("unknown_field", f"$.field_{number}", "not in the contract")]) for number in range(12)]
    bury(lake_settings, [(b"{}", of_items), (b"{}", [*of_items[1:], ("not_allowed", "$.at", "[red]x")]), *rare])
    for columns in ("80", "160"):
        monkeypatch.setenv("COLUMNS", columns)
        print_summary(lake_settings, "events")
        out = capsys.readouterr().out
        # Twice, once per dead letter and not per item; control characters in data are escaped.
        assert re.search(r"│ wrong_type +│ \$\.items\[\]\.qty +│ +2 │ got \\u202e", out)
        assert re.search(r"│ not_allowed +│ \$\.at +│ +1 │ \[red\]x +│", out)
        assert "and 4 more reasons and paths" in out
        assert not set("\u202e\x1b") & set(out)
        assert re.search(r"│ total +│ +│ +14 │", out)
        assert out.count("unknown_field") == 8


def test_outside_of_a_clone_it_names_no_target_of_make(
    lake: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    print_summary(lake, "events")
    out = capsys.readouterr().out
    assert "make " not in out
    assert "reader shell" in out


def test_tables_without_rows(lake_settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    print_summary(lake_settings, "events")
    out = capsys.readouterr().out
    assert re.search(r"│ 0 +│ 0 +│ 0 +│ none +│ none +│", out)
    assert re.search(r"│ total  │ +│ +0 │", out)


def test_it_is_of_one_moment_while_the_consumer_commits(
    lake_settings: Settings, append: Append, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contract, catalog = load_contract(lake_settings.contracts, "events"), open_catalog(lake_settings)
    ensure_tables(catalog, contract)
    ensure_silver_tables(catalog, contract, silver_tables("events"))
    append(lake_settings, 3)
    dead_letters = summary._dead_letters

    def commit_meanwhile(*arguments: Any) -> Any:
        append(lake_settings, 5, start=100)
        return dead_letters(*arguments)

    monkeypatch.setattr(summary, "_dead_letters", commit_meanwhile)
    print_summary(lake_settings, "events")
    out = capsys.readouterr().out
    assert re.search(r"│ 3 +│ 1 +│ 1 +│ 2026-01-01 12:00:00\+00 │", out)
    assert re.search(r"│ 0 +│ 0 +│ 0 +│ 0 +│ 3 +│", out)  # not decided yet


def test_it_counts_samples_and_anomalies(lake_settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    lake = changed(lake_settings, LAKE_GOLD=str(ROOT / "gold"))
    contract, catalog = load_contract(lake.contracts, "sensors"), open_catalog(lake)
    ensure_tables(catalog, contract)
    print_summary(lake, "sensors")
    assert "sensor_samples" not in capsys.readouterr().out
    (samples,) = load_all_samples(lake.gold, ["sensors"], lambda _: contract)
    names = samples_tables(samples.name, samples.anomalies)
    ensure_samples_tables(catalog, samples, names)
    print_summary(lake, "sensors")
    assert re.search(r"│ sensor_samples +│ +0 │ +0 │ none +│ +0 │", capsys.readouterr().out)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    starts = [noon, noon, noon + timedelta(minutes=1)]
    for name, column, times in ((names.samples, "window_start", starts), (names.anomalies, "event_time", starts[:1])):
        table = catalog.load_table(name)
        schema = pa.schema([field.with_nullable(True) for field in table.schema().as_arrow()])
        table.append(pa.Table.from_pylist([{column: time_} for time_ in times], schema))
    print_summary(lake, "sensors")
    row = r"│ sensor_samples +│ +3 │ +2 │ 2026-01-01 12:01:00\+00 │ +1 │"
    assert re.search(row, capsys.readouterr().out)
    catalog.drop_table(names.anomalies)
    print_summary(lake, "sensors")
    assert "sensor_samples" not in capsys.readouterr().out


def test_waiting_ends_with_the_first_rows_of_bronze(lake_settings: Settings, append: Append, bury: Append) -> None:
    """A stream without a bad record has no dead letters."""

    def consume() -> None:
        time.sleep(0.3)
        ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
        bury(lake_settings, [(b"x", [("corrupt_batch", "$", "cut short")])])
        time.sleep(0.3)
        append(lake_settings, 2)

    consumer = threading.Thread(target=consume)
    start = time.monotonic()
    consumer.start()
    wait_for_rows(lake_settings, "events", 120)
    assert 0.6 < time.monotonic() - start < 120
    consumer.join()


def test_new_rows_are_waited_for_and_counted_apart(
    lake: Settings, append: Append, bury: Append, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LakeproofError, match=r"3 bronze rows"):
        wait_for_rows(lake, "events", 0.1, new=True)
    # All rows of the fixtures have this ingestion time.
    print_summary(lake, "events", datetime(2026, 1, 1, 12, tzinfo=UTC))
    assert re.search(r"since 12:00:00 UTC.*│ 3 +│ 1 +│ 1 +│.*since 12:00:00 UTC.*│ total +│ +│ +3 │", written(capsys))
    print_summary(lake, "events", datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC))
    assert re.search(r"│ 0 +│ 0 +│ 0 +│ none.*│ total +│ +│ +0 │", written(capsys))


def written(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.replace("\n", " ")


def test_silver_is_waited_for_if_it_is_filled(lake: Settings) -> None:
    contract = load_contract(lake.contracts, "events")
    ensure_silver_tables(open_catalog(lake), contract, silver_tables("events"))
    with pytest.raises(LakeproofError, match=r"silver\.events is empty"):
        wait_for_rows(lake, "events", 0.1)


def test_waiting_in_vain_names_the_program_to_look_at(lake_settings: Settings) -> None:
    with pytest.raises(LakeproofError) as caught:
        wait_for_rows(lake_settings, "events", 0.1)
    assert caught.value.exit_code == 1
    assert "0 files landed" in caught.value.message
    assert "the log of the producer" in caught.value.hint
    assert str(lake_settings.logs) in caught.value.hint

    open_storage(lake_settings.landing.uri, lake_settings.s3).write_new(
        f"{lake_settings.landing.uri}/events/a.json", b"[]"
    )
    with pytest.raises(LakeproofError) as caught:
        wait_for_rows(lake_settings, "events", 0.1)
    assert "1 file landed" in caught.value.message
    assert "the log of the consumer" in caught.value.hint


def test_an_unknown_stream_names_the_known_ones(lake_settings: Settings) -> None:
    for ask in (lambda: wait_for_rows(lake_settings, "nope", 0), lambda: print_summary(lake_settings, "nope")):
        with pytest.raises(UsageError, match="events"):
            ask()


def test_dead_letters_that_a_replay_closed_are_counted_apart(
    lake_settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landed = Lake(lake_settings)
    bad = [{"user_id": "u", "event_id": str(number), "event_type": "refund"} for number in range(3)]
    landed.land({"a.json": json.dumps([each | {"event_timestamp": "2026-11-21T12:30:00Z"} for each in bad]).encode()})
    landed.consume()
    Replayer(lake_settings, tmp_path / "today").replay(lambda letter: letter["_position"] < 2)
    print_summary(lake_settings, "events")
    out = capsys.readouterr().out
    assert re.search(r"│ not_allowed +│ \$\.event_type +│ +1 │", out)
    assert "without 2 dead letters that a replay closed" in out
