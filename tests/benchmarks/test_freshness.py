"""A file's time is the sum of its steps, and a file that was not read completely and once is an error."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.freshness_figures import Journey, commits, journeys, read_notes
from benchmarks.freshness_kafka import ages
from benchmarks.harness import SideFailedError, clean_environment
from benchmarks.programs import run_program, wait_for

from lakeproof.kafka.offsets import source_name

LANDED = [{"name": "a", "due": 0.0, "at": 1.0}, {"name": "b", "due": 2.0, "at": 2.0}]
CONSUMED: list[dict[str, Any]] = [
    {"micro_batch": 0, "began": 0.1, "planned": 0.2, "judged": 0.3, "bronze": 0.4, "dead_letters": 0.5, "ledger": 0.6},
    {"micro_batch": 1, "began": 3.0, "planned": 3.5, "judged": 4.5, "bronze": 5.0, "dead_letters": 5.5, "ledger": 6.5},
]
POLLS = [{"began": 4.0, "at": 4.1, "seen": []}, {"began": 5.1, "at": 5.25, "seen": [["a", 1, 100], ["b", 1, 100]]}]


def test_the_steps_of_a_file_make_up_its_time() -> None:
    first, second = journeys(LANDED, CONSUMED, POLLS, 100)
    assert first == Journey(1.0, waiting=2.0, planning=0.5, judging=1.0, committing=0.5, reading=0.25)
    assert (first.seconds, second.seconds) == (4.25, 3.25)


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ([["a", 1, 100]], "b was never seen"),
        ([["a", 1, 100], ["b", 1, 99]], "b was seen twice, or with 99"),
        ([["a", 1, 100], ["b", 1, 100], ["a", 2, 100]], "a was seen twice"),
    ],
)
def test_a_file_that_was_not_seen_whole_and_once_is_an_error(seen: list[list[Any]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        journeys(LANDED, CONSUMED, [{"began": 5.1, "at": 5.25, "seen": seen}], 100)


def test_each_commit_counts_from_the_end_of_the_one_before() -> None:
    found = commits(CONSUMED[1:])
    assert found == {"bronze": [0.5], "dead_letters": [0.5], "ledger": [1.0]}


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert read_notes(notes) == []
    notes.write_text(json.dumps(LANDED[0]) + '\n{"name": "b", "du')
    assert read_notes(notes) == LANDED[:1]


def test_messages_are_as_old_as_the_poll_that_saw_them() -> None:
    name = partial(source_name, "t")
    sent = [{"at": 10.0, "places": {"0": [4, 5]}}, {"at": 11.0, "places": {"0": [6, 6], "1": [0, 0]}}]
    polls = [
        {"at": 12.0, "seen": [[name(0, 4), 1, 1], [name(0, 5), 1, 1]]},
        {"at": 13.5, "seen": [[name(0, 6), 2, 1], [name(1, 0), 2, 1]]},
    ]
    assert ages(sent, polls, "t") == [2.0, 2.0, 2.5, 2.5]
    with pytest.raises(ValueError, match=r"t/0/0+6 was never seen"):
        ages(sent, polls[:1], "t")
    with pytest.raises(ValueError, match=r"t/0/0+4 was seen twice"):
        ages(sent, [*polls, polls[0]], "t")


@pytest.mark.all
def test_the_timed_consumer_notes_each_step_of_a_micro_batch(tmp_path: Path) -> None:
    """It replaces methods of the consumer, and so depends on their arguments."""
    landing, notes = tmp_path / "landing" / "events", tmp_path / "notes"
    landing.mkdir(parents=True)
    (landing / "a.json").write_bytes(b'{"not": "an event"}')
    environment = clean_environment(tmp_path / "lake") | {"LAKE_LANDING": str(landing.parent)}
    with run_program("benchmarks.freshness_consumer", tmp_path, environment, notes) as consumer:
        wait_for(lambda: any("micro_batch" in each for each in read_notes(notes)), [consumer])
        consumer.terminate()
        consumer.wait(180)
    noted = next(each for each in read_notes(notes) if "micro_batch" in each)
    assert noted.keys() == {"micro_batch", "began", "planned", "judged", "bronze", "dead_letters", "ledger"}


def test_a_program_that_ends_too_early_is_quoted(tmp_path: Path) -> None:
    with (
        pytest.raises(SideFailedError, match=r"(?s)exit code 2:.*usage|Usage"),
        run_program("benchmarks", tmp_path, clean_environment(tmp_path), "--no-such-option") as program,
    ):
        wait_for(lambda: False, [program])
