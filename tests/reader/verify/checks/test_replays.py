"""Verify accepts correct replays of dead letters, and finds each planted fault."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT
from tests.lakes import changed, put_back
from tests.reader.verify.lake import Lake
from tests.reader.verify.replays import TABLES, Replayer, Row, TopicLake
from tests.selection import first_by_default, only_with_all
from tests.servers import KafkaServer
from typer.testing import CliRunner

from lakeproof.kafka.recorded import recorded_topic
from lakeproof.settings import Settings, settings_of
from lakeproof.state.database import open_database
from reader.cli import app
from reader.verify.checks.replays import OTHER_BYTES, OTHER_REST
from reader.verify.tables import accounts


def event(number: int, **changes: Any) -> bytes:
    record = {
        "user_id": f"u{number}",
        "event_id": f"e{number:02}",
        "event_timestamp": "2026-11-21T12:30:00Z",
        "event_type": "purchase",
        "properties": {"amount": 12.5},
    }
    return json.dumps(record | changes).encode()


def array(*records: bytes) -> bytes:
    return b"[" + b", ".join(records) + b"]"


A = array(event(0), event(1, event_type="refund"), event(2), event(3, user_id=3), event(4, extra="x"))
CUT = array(event(5), event(6, event_type="refund"), event(7, user_id=7), event(8))[:-30]
OPEN = array(event(9), event(10))[:-1]


@dataclass(frozen=True)
class World:
    """A lake with replays, from files or a topic: the names of its batches, and the environment of verify."""

    tables: Replayer
    names: dict[str, str]  # the `_source` of each batch
    environment: dict[str, str]

    def verify(self, *arguments: str) -> dict[str, Any]:
        command = ["verify", "events", "--format", "json", *arguments]
        done = CliRunner().invoke(app, command, env=self.environment, catch_exceptions=False)
        report = json.loads(done.stdout)
        assert report["clean"] == (done.exit_code == 0)
        (stream,) = report["streams"]
        assert isinstance(stream, dict)
        return stream

    def of(self, name: str, position: int | None = None) -> Callable[[Row], bool]:
        source = self.names[name]
        return lambda row: row["_source"] == source and position in (None, row["_position"])

    def drop(self, table: str, gone: Callable[[Row], bool]) -> None:
        before = len(self.tables.rows(table))
        self.tables.edit(table, lambda rows: [row for row in rows if not gone(row)])
        assert len(self.tables.rows(table)) < before

    def change(self, table: str, these: Callable[[Row], bool], **changes: Any) -> None:
        def change(rows: list[Row]) -> None:
            found = [row for row in rows if these(row)]
            assert found
            for row in found:
                row.update(changes)

        self.tables.edit(table, change)

    def again(self, table: str, these: Callable[[Row], bool], **changes: Any) -> None:
        found = [row | changes for row in self.tables.rows(table) if these(row)]
        assert found
        self.tables.append(table, *found)


def replay_all(world: World) -> World:
    """Make four replays: of all; of a batch, with salvage; with a transform; of all again, up to the attempt limit."""
    tables = world.tables
    tables.replay()
    tables.replay(world.of("cut"), salvage=True)
    tables.replay(
        lambda row: world.of("a", 4)(row) or world.of("open")(row),
        transform=lambda raw: raw + b"]" if raw.startswith(b"[") else raw.replace(b', "extra": "x"', b""),
    )
    tables.replay(most=2)
    return world


def land(source: str, settings: Settings, folder: Path, request: pytest.FixtureRequest) -> World:
    """Land batches, without any replay."""
    environment = request.getfixturevalue("reader_environment")
    batches = {"a": A, "cut": CUT, "open": OPEN}
    if source == "files":
        lake = Lake(settings)
        lake.land({f"{name}.json": content for name, content in batches.items()})
        lake.consume()
        names = {name: f"{name}.json" for name in batches}
        return World(Replayer(settings, folder), names, environment(settings))
    kafka: KafkaServer = request.getfixturevalue("kafka")
    own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    settings = changed(settings, **own)
    topic = TopicLake(settings, kafka)
    topic.land({0: [event(20), A, CUT], 1: [OPEN]})
    places = {"a": f"0/{1:019}", "cut": f"0/{2:019}", "open": f"1/{0:019}"}
    names = {name: f"{topic.topic}/{place}" for name, place in places.items()}
    return World(Replayer(settings, folder), names, environment(settings) | own)


SOURCES = first_by_default(["files", "kafka"])


@pytest.fixture(params=SOURCES)
def own_world(request: pytest.FixtureRequest, lake_settings: Settings, tmp_path: Path) -> World:
    """A world of the test's own, without any replay."""
    return land(request.param, lake_settings, tmp_path / "today", request)


@pytest.fixture(scope="module")
def worlds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., World]:
    """The world of each source, with and without replays, made once: change only its tables, and put them back."""

    @cache
    def of(source: str, *, replayed: bool) -> World:
        folder = tmp_path_factory.mktemp(source)
        settings = settings_of({"LAKE_HOME": folder / "lake", "LAKE_CONTRACTS": ROOT / "contracts"})
        made = land(source, settings, folder / "today", request)
        return replay_all(made) if replayed else made

    return of


@pytest.fixture(params=SOURCES)
def landed(request: pytest.FixtureRequest, worlds: Callable[..., World]) -> Iterator[World]:
    """A world without any replay, whose tables are put back after the test."""
    found = worlds(request.param, replayed=False)
    with put_back(found.tables.settings):
        yield found


@pytest.fixture(params=SOURCES)
def world(request: pytest.FixtureRequest, worlds: Callable[..., World]) -> Iterator[World]:
    """A world with replays, whose tables are put back after the test."""
    found = worlds(request.param, replayed=True)
    with put_back(found.tables.settings):
        yield found


def test_replays_are_clean(landed: World) -> None:
    before = landed.verify("--values")
    assert (before["replays"], before["sources"], before["problems"]) == (None, [], [])
    report = replay_all(landed).verify("--values")
    assert (report["sources"], report["problems"], report["replays"]["findings"]) == ([], [], [])
    # Of a.json, one of three dead letters is left; of cut.json, a bad record and the rest.
    assert report["landed_units"] == report["bronze_rows"] + report["dead_letters"]
    assert report["landed_units"] == before["landed_units"] + 3 + 1
    assert report["dead_letters"] == 3
    replays = report["replays"]
    counts = {name: replays[name] for name in ("replays", "attempts", "open", "parked", "closed")}
    assert counts == {"replays": 4, "attempts": 5 + 1 + 2 + 3, "open": 2, "parked": 1, "closed": 4}
    assert replays["transformed_records"] == 1 + 2
    of_record = next(each for each in replays["transformed"] if each["position"] == 4)
    assert of_record["transform"] == "fix.py"
    assert json.loads(of_record["original"]) == json.loads(of_record["landed"]) | {"extra": "x"}


def closed_without_a_row(world: World) -> None:
    world.tables.edit(
        TABLES.attempts,
        lambda rows: [
            row | {"outcome": "closed", "reasons": None} if world.of("a", 3)(row) and row["_attempt"] == 3 else row
            for row in rows
        ],
    )


def ledger_of(world: World, replay: int) -> Callable[[Row], bool]:
    return lambda row: row["replay"] == replay


def rows_of_replay(number: int) -> Callable[[Row], bool]:
    return lambda row: row["replay"] == number


def in_bronze_too(world: World) -> None:
    row = next(row for row in world.tables.rows(TABLES.bronze) if world.of("a", 1)(row))
    world.tables.append(TABLES.bronze, row | {"_position": 3})


@pytest.mark.all
def test_replays_of_what_was_proven_are_proven(own_world: World) -> None:
    open_database(own_world.tables.settings.state.database).dispose()
    assert own_world.verify("--new")["proof"]["kind"] == "all"
    world = replay_all(own_world)
    report, everything = world.verify("--new", "--values"), world.verify("--values")
    assert (report["sources"], report["problems"], report["replays"]["findings"]) == ([], [], [])
    assert (report["proof"]["kind"], report["proof"]["since"], report["proof"]["findings"]) == ("new", 1, [])
    counts = {name: report["replays"][name] for name in ("replays", "attempts", "parked", "closed")}
    assert counts == {name: everything["replays"][name] for name in counts}
    # More replays of dead letters that were replayed before the last proof.
    world.tables.replay(most=9)
    report = world.verify("--new")
    assert (report["sources"], report["problems"], report["replays"]["findings"]) == ([], [], [])
    assert (report["proof"]["kind"], report["proof"]["findings"]) == ("new", [])
    world.drop(TABLES.bronze, world.of("a", 1))  # an old row, in a file that also has new ones
    found = world.verify("--new")
    assert "other rows than were proven" in [each["finding"] for each in found["proof"]["findings"]]


FAULTS: dict[str, tuple[Callable[[World], None], str]] = {
    "a replayed row lost": (lambda w: w.drop(TABLES.bronze, w.of("a", 1)), "closed, but not in bronze"),
    "a replayed row doubled": (
        lambda w: w.again(TABLES.bronze, w.of("a", 1)), "closed, and in bronze several times"),
    "closed without a row": (closed_without_a_row, "closed, but not in bronze"),
    "all attempts removed": (
        lambda w: w.drop(TABLES.attempts, lambda row: True), "there is no attempt of it"),
    "an attempt removed": (
        lambda w: w.drop(TABLES.attempts, lambda row: w.of("a", 3)(row) and row["_attempt"] == 2),
        "attempts 3"),
    "the closing attempt removed": (
        lambda w: w.drop(TABLES.attempts, w.of("a", 1)), "open or parked|not replayed|of no dead letter"),
    "an attempt twice": (lambda w: w.again(TABLES.attempts, w.of("a", 1)), "attempts 2, 2"),
    "an attempt after it was closed": (
        lambda w: w.again(
            TABLES.attempts, w.of("a", 1), _attempt=3, outcome="failed", replay=4,
            reasons=[{"code": "not_allowed", "path": "$", "detail": ""}]),
        "attempts after the dead letter was closed"),
    "an attempt of no dead letter": (
        lambda w: w.again(TABLES.attempts, w.of("a", 1), _position=2), "without a dead letter"),
    "an outcome that does not exist": (
        lambda w: w.change(TABLES.attempts, w.of("a", 3), outcome="lost"), "an outcome that does not exist"),
    "failed without a reason": (
        lambda w: w.change(TABLES.attempts, w.of("a", 3), reasons=None), "not closed, without a reason"),
    "other reasons of the letter": (
        lambda w: w.change(TABLES.attempts, w.of("a", 3), letter_reasons="null_field"), "reasons that are not those"),
    "a transform without a digest": (
        lambda w: w.change(TABLES.attempts, lambda row: row["transform"] is not None, transform_digest=None),
        "a transform without a digest"),
    "the ledger's row removed": (
        lambda w: w.drop(TABLES.ledger, rows_of_replay(2)), "no row; the replay was interrupted"),
    "the ledger's row twice": (lambda w: w.again(TABLES.ledger, rows_of_replay(2)), "2 rows"),
    "another number closed": (
        lambda w: w.change(TABLES.ledger, rows_of_replay(2), closed=[("corrupt_batch", 2)]), "closed: ledger"),
    "other reasons closed": (
        lambda w: w.change(TABLES.ledger, rows_of_replay(2), closed=[("wrong_type", 1)]), "closed: ledger"),
    "nothing closed": (lambda w: w.change(TABLES.ledger, rows_of_replay(2), closed=[]), "closed: ledger"),
    "other counts": (lambda w: w.change(TABLES.ledger, rows_of_replay(2), bronze=1), "bronze: ledger 1, tables 2"),
    "other dead letters": (
        lambda w: w.change(TABLES.ledger, rows_of_replay(2), dead_letters=[]), "dead letters: ledger"),
    "another number of the replay": (
        lambda w: w.change(TABLES.ledger, rows_of_replay(2), replay=7), "another number of the replay"),
    "a complete record left in the rest": (
        lambda w: w.drop(TABLES.bronze, w.of("cut", 1)), "records of a batch that were left behind"),
    "a bad record of a salvage lost": (
        lambda w: w.drop(TABLES.dead_letters, lambda row: w.of("cut", 2)(row)),
        "records of a batch that were left behind"),
    "the rest of a salvage lost": (
        lambda w: w.drop(TABLES.dead_letters, w.of("cut", 3)), "bytes are in no dead letter"),
    "the rest of a salvage altered": (
        lambda w: w.change(TABLES.dead_letters, w.of("cut", 3), raw=b"{"), "the rest of a batch"),
    "a bad record of a salvage altered": (
        lambda w: w.change(TABLES.dead_letters, w.of("cut", 2), raw=b"{}"), "other bytes than the batch"),
    "fewer salvaged than the batch has": (
        lambda w: w.change(TABLES.attempts, lambda r: w.of("cut")(r) and r["salvaged"] is not None, salvaged=2),
        "the attempt has 2, the batch 3"),
    "a transformed record that is not what was judged": (
        lambda w: w.change(TABLES.bronze, w.of("a", 4), user_id="other"), "user_id is other in bronze"),
    "a record of a transformed batch that is not what was judged": (
        lambda w: w.change(TABLES.bronze, w.of("open", 1), user_id="other"), "user_id is other in bronze"),
    "other transformed bytes": (
        lambda w: w.change(
            TABLES.attempts, lambda row: w.of("a", 4)(row) and row["raw"] is not None, raw=event(4, user_id="z")),
        "user_id is u4 in bronze, but .z. landed"),
    "an open dead letter in bronze": (in_bronze_too, "open or parked, but in bronze"),
    "a row of a replay that no letter explains": (
        lambda w: w.again(TABLES.bronze, w.of("a", 1), _position=9), "but of no dead letter that it closed"),
    "a replayed row with another landing time": (
        lambda w: w.change(TABLES.bronze, w.of("a", 1), _landed_at=datetime(2026, 1, 2, tzinfo=UTC)),
        "another landing time, key or headers"),
    "a replayed row of another micro-batch": (
        lambda w: w.change(TABLES.bronze, w.of("a", 1), _micro_batch_id=0), "its row is not of that replay"),
    "a dead letter that was closed, removed": (
        lambda w: w.drop(TABLES.dead_letters, w.of("a", 1)), "without a dead letter"),
}  # fmt: skip


# Of a topic, those whose rows verify finds in another way than of files; the others with ALL=1.
OF_TOPIC = (
    "a replayed row lost",
    "the ledger's row removed",
    "a bad record of a salvage lost",
    "a transformed record that is not what was judged",
    "a replayed row with another landing time",
)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        *first_by_default((("files", name) for name in FAULTS), 3),
        *(only_with_all("kafka", name) for name in FAULTS if name in OF_TOPIC),
        *(pytest.param("kafka", name, marks=pytest.mark.long) for name in FAULTS if name not in OF_TOPIC),
    ],
)
def test_each_fault_is_found(worlds: Callable[..., World], source: str, name: str) -> None:
    fault, why = FAULTS[name]
    world = worlds(source, replayed=True)
    with put_back(world.tables.settings):
        fault(world)
        report = world.verify()
    told = [f"{each['finding']} {each['examples']}" for each in report["replays"]["findings"]]
    assert re.search(why, "\n".join(told)), report


@pytest.mark.all
@pytest.mark.parametrize("world", SOURCES, indirect=True)
def test_lost_and_doubled_rows_are_faults_of_their_source(world: World) -> None:
    in_bronze_too(world)
    assert [each["status"] for each in world.verify()["sources"]] == ["doubled"]
    world.drop(TABLES.bronze, world.of("a", 1))
    (found,) = world.verify()["sources"]
    assert (found["status"], len(found["details"])) == ("lost", 2)


@pytest.mark.all
@pytest.mark.parametrize("world", SOURCES, indirect=True)
def test_a_dropped_table_of_attempts_is_said(world: World) -> None:
    world.tables.catalog.drop_table(TABLES.attempts)
    report = world.verify()
    said = report["problems"] + report["replays"]["problems"]
    assert all("dead_letters.events_attempts does not exist" in text for text in said)
    assert len(said) == 2
    assert report["sources"] == []


@pytest.mark.parametrize("landed", SOURCES, indirect=True)
@pytest.mark.parametrize("steps", first_by_default([1, 2, 3]))
def test_an_interrupted_replay_is_a_fault_of_the_ledger_alone(landed: World, steps: int) -> None:
    landed.tables.replay(landed.of("cut"), salvage=True, steps=steps)
    report = landed.verify()
    found = [(each["table"], each["finding"]) for each in report["replays"]["findings"]]
    assert ("ledger.events", "wrong counts of a replay") in found
    if steps != 2:
        assert report["sources"] == []


@pytest.mark.parametrize("landed", SOURCES, indirect=True)
def test_a_running_replay_is_waited_for(landed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    landed.tables.replay(landed.of("a"), steps=1)
    world = landed
    world.change(TABLES.attempts, lambda row: True, _ingested_at=datetime.now(UTC))
    due = [lambda: world.drop(TABLES.attempts, lambda row: True), lambda: world.tables.replay(landed.of("a"))]

    def commit(_seconds: float) -> None:
        while due:
            due.pop(0)()

    monkeypatch.setattr(accounts, "sleep", commit)
    report = world.verify()
    assert (due, report["sources"], report["replays"]["findings"]) == ([], [], [])


@pytest.mark.all
@pytest.mark.parametrize("world", SOURCES, indirect=True)
def test_an_altered_value_of_a_replayed_row_is_found_where_values_are_compared(world: World) -> None:
    world.change(TABLES.bronze, world.of("a", 1), user_id="other")
    assert world.verify()["replays"]["findings"] == []
    (found,) = world.verify("--values")["replays"]["findings"]
    assert "user_id is other in bronze" in found["examples"][0]


@pytest.mark.all
def test_values_that_replayed_rows_lack_are_those_that_the_replays_discarded(world: World) -> None:
    """The ledger counts those of a file, or of all messages of a partition."""

    def number_of(row: Row) -> bool:
        return bool(row["source"] == world.names["a"] and row["replay"] == 1)

    def told() -> list[str]:
        return [text for each in world.verify("--values")["replays"]["findings"] for text in each["examples"]]

    world.change(TABLES.ledger, number_of, discarded=[("wrong_type", 1)])
    of = world.names["a"].rpartition("/")[0] or world.names["a"]
    assert told() == [f"{of}: the ledger has 1 discarded values, but 0 are missing"]
    world.change(TABLES.bronze, world.of("a", 1), properties=None)
    assert told() == []
    # Of a topic, in another message.
    other = ("cut", 1) if "/" in world.names["a"] else ("a", 4)
    world.change(TABLES.bronze, world.of(*other), properties=None)
    found = told()
    assert found[0] == f"{of}: the ledger has 1 discarded values, but 2 are missing"
    assert len(found) == 3


@pytest.mark.all
def test_what_landed_may_be_gone(own_world: World, request: pytest.FixtureRequest) -> None:
    """The dead letters have the bytes, so a replay is checked without the files or messages."""
    world = replay_all(own_world)
    if recorded := recorded_topic(world.tables.catalog.load_table(TABLES.ledger).properties):
        kafka: KafkaServer = request.getfixturevalue("kafka")
        for partition, end in enumerate((3, 1)):
            kafka.delete_records(recorded.topic, partition, end)
    else:
        for path in Path(world.tables.settings.landing.uri.removeprefix("file://"), "events").glob("*.json"):
            path.unlink()
    report = world.verify("--values")
    assert {each["status"] for each in report["sources"]} == {"expired"}
    world.drop(TABLES.bronze, world.of("cut", 0))
    report = world.verify()
    assert any(each["finding"] == "records of a batch that were left behind" for each in report["replays"]["findings"])


@pytest.mark.all
@pytest.mark.parametrize("world", SOURCES, indirect=True)
def test_the_limit_of_records_may_have_been_raised_since_a_salvage(world: World) -> None:
    reasons = [{"code": code, "path": "$", "detail": ""} for code in ("corrupt_batch", "batch_too_large")]
    world.change(TABLES.dead_letters, lambda row: row["_attempt"] == 2, raw=None, reasons=reasons)
    found = {each["finding"] for each in world.verify()["replays"]["findings"]}
    assert found.isdisjoint({OTHER_BYTES, OTHER_REST})
    world.change(TABLES.dead_letters, lambda row: row["_attempt"] == 2, raw=None, reasons=reasons[:1])
    found = {each["finding"] for each in world.verify()["replays"]["findings"]}
    assert found >= {OTHER_BYTES, OTHER_REST}


def world_of(lake: Lake, tmp_path: Path, environment: dict[str, str]) -> World:
    return World(Replayer(lake.settings, tmp_path / "today"), {"a": "a.json"}, environment)


@pytest.mark.all
@pytest.mark.parametrize("transformed", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_batch_that_was_too_large_and_is_read_again(
    lake_settings: Settings,
    tmp_path: Path,
    reader_environment: Callable[[Settings], dict[str, str]],
    transformed: bool,
) -> None:
    lake = Lake(changed(lake_settings, LAKE_MAX_UNPACKED_BYTES=100))
    content = array(event(0), event(1))
    lake.land({"a.json": content})
    lake.consume()
    world = world_of(lake, tmp_path, reader_environment(lake_settings))
    world.tables.replay(transform=lambda raw: content)
    if not transformed:
        same = {"transform": None, "transform_digest": None, "raw": None}
        world.change(TABLES.attempts, lambda row: True, **same)
    report = world.verify("--values")
    assert (report["sources"], report["replays"]["findings"], report["landed_units"]) == ([], [], 2)
    world.drop(TABLES.bronze, world.of("a", 1))
    assert [each["status"] for each in world.verify()["sources"]] == ["lost"]


@pytest.mark.all
def test_a_file_that_was_overwritten_before_it_was_read_can_be_put_right(
    lake_settings: Settings, tmp_path: Path, reader_environment: Callable[[Settings], dict[str, str]]
) -> None:
    lake = Lake(lake_settings)
    lake.land({"a.json": array(event(0))})
    lake.consume(changed=frozenset({"a.json"}))
    world = world_of(lake, tmp_path, reader_environment(lake_settings))
    assert [each["status"] for each in world.verify()["sources"]] == ["changed"]
    world.tables.replay(transform=lambda raw: array(event(0)))
    report = world.verify("--values")
    assert (report["sources"], report["replays"]["findings"], report["bronze_rows"]) == ([], [], 1)


def test_a_ledger_that_is_older_than_replays(
    lake_settings: Settings, tmp_path: Path, reader_environment: Callable[[Settings], dict[str, str]]
) -> None:
    lake = Lake(lake_settings)
    lake.land({"a.json": A})
    lake.consume()
    with lake.catalog.load_table(TABLES.ledger).update_schema() as update:
        update.delete_column("replay").delete_column("closed")
    report = world_of(lake, tmp_path, reader_environment(lake_settings)).verify("--values")
    assert (report["sources"], report["problems"], report["replays"]) == ([], [], None)
