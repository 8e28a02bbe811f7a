"""Limits that were changed after messages were judged: verify doubts no earlier verdict, and still finds faults."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT
from tests.lakes import changed, put_back
from tests.reader.verify.replays import TABLES, Replayer, Row, TopicLake
from tests.selection import first_by_default
from tests.servers import KafkaServer
from typer.testing import CliRunner

from lakeproof.settings import Settings, settings_of
from reader.cli import app

UNPACKED, RECORD = 2_000, 800


def event(number: int, **more: Any) -> bytes:
    record = {
        "user_id": "u",
        "event_id": str(number),
        "event_timestamp": "2026-11-21T12:30:00Z",
        "event_type": "page_view",
    }
    return json.dumps(record | more).encode()


def array(*records: bytes) -> bytes:
    return b"[" + b", ".join(records) + b"]"


BAD = event(0, extra="x" * 300)
LARGE = event(1, user_id="u" * 1_000)
MESSAGES = [
    array(*(event(number) for number in range(10, 16))),  # split
    array(*(event(number) for number in range(20, 60))),  # too large to split
    array(event(2), BAD, LARGE),  # a dead letter with its bytes, and one without
    BAD,
    b"x" * 400,
    event(3),
    b"x" * 3_000,  # too large, and cannot be split
]
UNITS = 6 + 1 + 3 + 1 + 1 + 1 + 1


class World:
    """A lake of a topic, and the environment of verify."""

    def __init__(self, settings: Settings, kafka: KafkaServer, environment: dict[str, str]) -> None:
        own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
        limits = {"LAKE_MAX_UNPACKED_BYTES": UNPACKED, "LAKE_MAX_RECORD_BYTES": RECORD}
        self.settings = changed(settings, **own)
        self.lake = TopicLake(changed(self.settings, **limits), kafka)
        self.lake.land({0: MESSAGES})
        self._environment = environment | own

    def verify(self, unpacked: int = UNPACKED, record: int = RECORD, *more: str) -> dict[str, Any]:
        """Return the report about the stream under other limits."""
        limits = {"LAKE_MAX_UNPACKED_BYTES": str(unpacked), "LAKE_MAX_RECORD_BYTES": str(record)}
        command = ["verify", "events", "--format", "json", "--values", *more]
        done = CliRunner().invoke(app, command, env=self._environment | limits, catch_exceptions=False)
        (stream,) = json.loads(done.stdout)["streams"]
        assert isinstance(stream, dict)
        return stream

    def faults(self, unpacked: int = UNPACKED, record: int = RECORD) -> list[tuple[str, list[str]]]:
        """Return status and details of each partition with faults."""
        return [(each["status"], each["details"]) for each in self.verify(unpacked, record)["sources"]]

    def drop(self, table: str, offset: int, position: int) -> Row:
        """Remove a row; return it."""
        rows = self.lake.rows(table)
        place = f"{self.lake.topic}/0/{offset:019}", position
        (gone,) = [row for row in rows if (row["_source"], row["_position"]) == place]
        self.lake.edit(table, lambda _: [row for row in rows if row is not gone])
        return gone


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, kafka: KafkaServer) -> World:
    own = {"LAKE_HOME": tmp_path_factory.mktemp("limits") / "lake", "LAKE_CONTRACTS": ROOT / "contracts"}
    settings = settings_of(own)
    return World(settings, kafka, request.getfixturevalue("reader_environment")(settings))


@pytest.fixture
def world(once: World) -> Iterator[World]:
    """Yield a lake whose tables are put back after the test."""
    with put_back(once.settings):
        yield once


CHANGED = [(1_000_000, RECORD), (100, 100), (UNPACKED, RECORD), (1_000, RECORD), (UNPACKED, 100_000), (UNPACKED, 100)]


@pytest.mark.parametrize(
    ("unpacked", "record"),
    [
        *first_by_default(CHANGED[:3]),
        *(pytest.param(*each, marks=pytest.mark.long) for each in CHANGED[3:]),
    ],
)
def test_limits_of_today_cast_no_doubt_on_earlier_verdicts(once: World, unpacked: int, record: int) -> None:
    report = once.verify(unpacked, record)
    assert (report["sources"], report["problems"]) == ([], [])
    assert report["landed_units"] == report["bronze_rows"] + report["dead_letters"] == UNITS


@pytest.mark.all
@pytest.mark.parametrize("unpacked", [UNPACKED, 1_000_000, pytest.param(100, marks=pytest.mark.long)])
def test_a_unit_that_is_lost_or_doubled_is_found(world: World, unpacked: int) -> None:
    row = world.drop(TABLES.bronze, 0, 5)
    ((status, details),) = world.faults(unpacked)
    assert (status, details[0]) == ("lost", "1 units (at 0[5]) in the topic are in no table")
    world.lake.append(TABLES.bronze, row, row | {"_position": 6})
    assert [status for status, _ in world.faults(unpacked)] == ["doubled"]


@pytest.mark.all
@pytest.mark.parametrize("unpacked", [UNPACKED, 1_000_000])
def test_a_row_beside_the_letter_of_a_whole_message_is_found(world: World, unpacked: int) -> None:
    (row,) = [row for row in world.lake.rows(TABLES.bronze) if row["_source"].endswith("/0000000000000000005")]
    source = row["_source"][:-1] + "1"
    world.lake.append(TABLES.bronze, row | {"_source": source, "_position": 1})
    assert [status for status, _ in world.faults(unpacked)] == ["doubled"]


@pytest.mark.all
@pytest.mark.parametrize("unpacked", [UNPACKED, 1_000_000])
def test_a_whole_message_that_is_lost_is_found(world: World, unpacked: int) -> None:
    world.drop(TABLES.dead_letters, 1, 0)
    count = 1 if unpacked == UNPACKED else 40
    ((status, details),) = world.faults(unpacked)
    assert status == "lost"
    assert details[0].startswith(f"{count} units (at 1")


@pytest.mark.all
def test_bytes_of_a_letter_are_compared_up_to_the_limit(world: World) -> None:
    letter = world.drop(TABLES.dead_letters, 3, 0)
    world.lake.append(TABLES.dead_letters, letter | {"raw": b"other"})
    said = "the dead letter of unit 0 of offset 3 differs from the message"
    assert world.faults() == [("changed", [said])]
    # A dead letter of a small unit must have its bytes, whatever its row says.
    world.drop(TABLES.dead_letters, 3, 0)
    world.lake.append(TABLES.dead_letters, letter | {"raw": None})
    assert world.faults(100) == [("changed", [said])]


@pytest.mark.all
def test_a_message_that_was_too_large_is_split_after_a_replay(world: World, tmp_path: Path) -> None:
    source = f"{world.lake.topic}/0/{1:019}"
    Replayer(world.settings, tmp_path / "today").replay(
        lambda letter: letter["_source"] == source, transform=lambda raw: MESSAGES[1]
    )
    same = {"transform": None, "transform_digest": None}  # the message was read again
    world.lake.edit(TABLES.attempts, lambda rows: [row | same for row in rows])
    for unpacked in (UNPACKED, 1_000_000):
        report = world.verify(unpacked)
        assert (report["sources"], report["replays"]["findings"]) == ([], [])
        assert report["landed_units"] == UNITS + 39
    world.drop(TABLES.bronze, 1, 39)
    assert [[status for status, _ in world.faults(unpacked)] for unpacked in (UNPACKED, 1_000_000)] == [["lost"]] * 2
