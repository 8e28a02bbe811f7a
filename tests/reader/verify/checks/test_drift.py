"""Verify distinguishes rescued values from wrong ones, and limits discarded values by the ledger."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.lakes import changed, put_back
from tests.reader.verify.lake import BRONZE, LEDGER, Lake, Row
from tests.reader.verify.replays import Replayer, TopicLake
from tests.selection import only_with_all
from tests.servers import KafkaServer
from typer.testing import CliRunner

from lakeproof.contracts import DriftPolicy
from lakeproof.settings import Settings, settings_of
from reader.cli import app
from reader.verify.landed.paths import parse_path, text_at

EVENTS = Path(__file__).parents[4] / "contracts" / "events.yaml"
EVENT_TIME = "  - property: eventTime\n    value: event_timestamp\n"


def event(number: int, more: str = "") -> str:
    return (
        f'{{"user_id": "u", "event_id": "{number}", "event_timestamp": "2026-11-21T12:30:00Z", '
        f'"event_type": "page_view"{more}}}'
    )


UNKNOWN = r', "product_id": 1.50, "odd \u0027key\u0027\\": {"a" : [1, "\u00e4"]}, "n": null'
IN_A_MAP = r', "properties": {"a": 1, "b": [], "c\n": {}}'
MORE = ', "properties": {"a": "b"}'
LANDED = {
    "a.json": f'[{event(0)},\n {event(1, UNKNOWN)}, {event(2, IN_A_MAP)}, {{"user_id": 1, "x": 1}}]',
    "b.json": f"[{event(3)}]",
}
KEPT = [
    None,
    {"$.product_id": "1.50", r"$['odd \'key\'\\']": r'{"a" : [1, "\u00e4"]}', "$.n": "null"},
    {"$.properties.b": "[]", r"$.properties['c\u000a']": "{}"},
    None,
]

Verify = Callable[..., tuple[int, dict[str, list[str]]]]


@pytest.fixture
def verify(reader_environment: Callable[[Settings], dict[str, str]]) -> Verify:
    def run(lake: Lake, *more: str) -> tuple[int, dict[str, list[str]]]:
        """Return the exit code, and the messages about each source with errors."""
        arguments = ["verify", "events", "--format", "json", "--values", *more]
        environment = reader_environment(lake.settings)
        done = CliRunner().invoke(app, arguments, env=environment, catch_exceptions=False)
        [stream] = json.loads(done.stdout)["streams"]
        return done.exit_code, {found["source"].rsplit("/", 1)[-1]: found["details"] for found in stream["sources"]}

    return run


Make = Callable[[DriftPolicy], AbstractContextManager[Lake]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[DriftPolicy], Lake]:
    """The lake of each policy, made once."""

    @cache
    def of(policy: DriftPolicy) -> Lake:
        home = tmp_path_factory.mktemp("drift") / "lake"
        settings = settings_of({"LAKE_HOME": home, "LAKE_CONTRACTS": contracts_in(home.parent, policy)})
        lake = Lake(settings)
        assert lake.contract.drift is policy
        lake.land({name: text.encode() for name, text in LANDED.items()})
        lake.consume()
        return lake

    return of


def contracts_in(parent: Path, policy: DriftPolicy) -> Path:
    """Write the contract with a policy; return its folder."""
    folder = parent / "contracts"
    folder.mkdir()
    drift = f"  - property: driftPolicy\n    value: {policy}\n"
    (folder / "events.yaml").write_text(EVENTS.read_text().replace(EVENT_TIME, EVENT_TIME + drift))
    return folder


@pytest.fixture
def make(made: Callable[[DriftPolicy], Lake]) -> Make:
    """Lend the lake of a policy, and put its tables back."""

    @contextmanager
    def lake(policy: DriftPolicy) -> Iterator[Lake]:
        with put_back(made(policy).settings):
            yield made(policy)

    return lake


def alter(table: str, change: Callable[[list[Row]], None]) -> Callable[[Lake], None]:
    def fault(lake: Lake) -> None:
        def edit(rows: list[Row]) -> None:
            rows.sort(key=lambda row: (row.get("_source") or row["source"], row.get("_position", 0)))
            change(rows)

        lake.edit(table, edit)

    return fault


def put(at: int, name: str, value: Any) -> Callable[[list[Row]], None]:
    def change(rows: list[Row]) -> None:
        rows[at][name] = value(rows[at][name]) if callable(value) else value

    return change


def without(path: str) -> Callable[[Any], Any]:
    return lambda entries: [entry for entry in entries if entry[0] != path]


def with_text(path: str, text: str) -> Callable[[Any], Any]:
    return lambda entries: [(key, text if key == path else value) for key, value in entries]


@pytest.mark.parametrize("policy", [DriftPolicy.RESCUE, DriftPolicy.DISCARD])
def test_what_drifted_is_no_difference(
    policy: DriftPolicy, made: Callable[[DriftPolicy], Lake], verify: Verify
) -> None:
    lake = made(policy)
    rows = sorted(lake.rows(BRONZE), key=lambda row: (row["_source"], row["_position"]))
    assert len(rows) == 4
    if policy is DriftPolicy.RESCUE:
        assert [row["_rescued"] and dict(row["_rescued"]) for row in rows] == KEPT
    assert [row["properties"] for row in rows][2] == [("a", "1"), ("b", None), ("c\n", None)]
    assert verify(lake) == (0, {})


RESCUED = "the counts of ledger and tables differ: rescued values"
PLANTED: dict[str, tuple[DriftPolicy, Callable[[Lake], None], str, str]] = {
    "a rescued value is lost": (
        DriftPolicy.RESCUE, alter(BRONZE, put(1, "_rescued", without("$.product_id"))), "a.json",
        "unit 1: product_id is null in bronze, but \"1.50\" landed"),
    "a rescued unknown field is lost": (
        DriftPolicy.RESCUE, alter(BRONZE, put(1, "_rescued", without("$.n"))), "a.json", RESCUED),
    "all that was rescued is lost": (DriftPolicy.RESCUE, alter(BRONZE, put(2, "_rescued", None)), "a.json", RESCUED),
    "a rescued text is another": (
        DriftPolicy.RESCUE, alter(BRONZE, put(1, "_rescued", with_text("$.product_id", "1.5"))), "a.json",
        "unit 1: $.product_id is 1.5 in _rescued, but 1.50 landed"),
    "a path that is none": (
        DriftPolicy.RESCUE, alter(BRONZE, put(0, "_rescued", [("product_id", "1")])), "a.json",
        "unit 0: product_id is in _rescued, but its value is not missing in bronze"),
    "rescued, and in its column": (
        DriftPolicy.RESCUE, alter(BRONZE, put(0, "_rescued", [("$.user_id", '"u"')])), "a.json",
        "unit 0: $.user_id is in _rescued, but its value is not missing in bronze"),
    "the ledger has fewer rescued values": (
        DriftPolicy.RESCUE, alter(LEDGER, put(0, "rescued", [("wrong_type", 4)])), "a.json",
        f"{RESCUED}: ledger 4, tables 5"),
    "the ledger has none of them": (DriftPolicy.RESCUE, alter(LEDGER, put(0, "rescued", None)), "a.json", RESCUED),
    "a value more is gone than were discarded": (
        DriftPolicy.DISCARD, alter(BRONZE, put(2, "properties", [("a", None), ("b", None), ("c\n", None)])), "a.json",
        "the ledger has 5 discarded values, but 6 are missing"),
    "a required value is gone": (
        DriftPolicy.DISCARD, alter(BRONZE, put(1, "user_id", None)), "a.json",
        "unit 1: user_id is None in bronze, but \"u\" landed"),
    "more were discarded than are missing": (
        DriftPolicy.DISCARD, alter(LEDGER, put(1, "discarded", [("wrong_type", 1)])), "b.json",
        "the ledger has 1 discarded values, but 0 are missing"),
    "the ledger has no discarded values": (
        DriftPolicy.DISCARD, alter(LEDGER, put(0, "discarded", [])), "a.json",
        "unit 1: product_id is null in bronze, but \"1.50\" landed"),
    "another value where one was discarded": (
        DriftPolicy.DISCARD, alter(BRONZE, put(1, "product_id", "1.5")), "a.json",
        "unit 1: product_id is 1.5 in bronze, but \"1.50\" landed"),
}  # fmt: skip


# By default, those of a column, of `_rescued` and of the ledger, under each policy; the others with ALL=1.
BY_DEFAULT = (
    "a rescued value is lost",
    "a rescued text is another",
    "the ledger has fewer rescued values",
    "a value more is gone than were discarded",
    "another value where one was discarded",
)


@pytest.mark.parametrize(
    "name",
    [
        *BY_DEFAULT,
        *(only_with_all(name) for name in PLANTED if name not in BY_DEFAULT),
    ],
)
def test_a_planted_fault_is_found(name: str, make: Make, verify: Verify) -> None:
    policy, plant, source, said = PLANTED[name]
    with make(policy) as lake:
        plant(lake)
        exit_code, details = verify(lake)
    assert exit_code == 1
    assert details.keys() == {source}
    assert any(said in text for text in details[source]), details


def test_of_a_part_no_more_may_be_missing_than_were_discarded(
    made: Callable[[DriftPolicy], Lake], verify: Verify
) -> None:
    lake = made(DriftPolicy.DISCARD)
    assert verify(lake, "--sample", "1") == (0, {})


# A topic has its own ranges of the ledger: of partition 0, offsets 0 to 2 and 3 to 5; of partition 1, offset 0.
MESSAGES = [f"[{event(0)}, {event(1, UNKNOWN)}]", event(2, IN_A_MAP), event(3, MORE)]
LATER = [event(number, MORE) for number in range(4, 7)]
OTHERS = [event(7, UNKNOWN)]


@pytest.fixture
def of_topic(
    lake_settings: Settings, tmp_path: Path, kafka: KafkaServer, request: pytest.FixtureRequest
) -> tuple[TopicLake, Verify]:
    """Return a lake of a topic whose contract discards, and verify for it."""
    folder = contracts_in(tmp_path, DriftPolicy.DISCARD)
    own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    made = TopicLake(changed(lake_settings, LAKE_CONTRACTS=folder, **own), kafka)
    made.land({0: [each.encode() for each in MESSAGES], 1: [each.encode() for each in OTHERS]})
    made.land({0: [each.encode() for each in LATER]})
    environment = request.getfixturevalue("reader_environment")(made.settings) | own

    def run(*more: str) -> tuple[int, dict[str, list[str]]]:
        command = ["verify", "events", "--format", "json", "--values", *more]
        done = CliRunner().invoke(app, command, env=environment, catch_exceptions=False)
        [stream] = json.loads(done.stdout)["streams"]
        return done.exit_code, {found["source"].rsplit("/", 1)[-1]: found["details"] for found in stream["sources"]}

    return made, run


def nulls(*offsets: int) -> Callable[[list[Row]], None]:
    """Return a change that removes an optional value from messages of partition 0."""

    def change(rows: list[Row]) -> None:
        for row in rows:
            _, partition, offset = row["_source"].rsplit("/", 2)
            if partition == "0" and int(offset) in offsets:
                assert row["properties"] is not None
                row["properties"] = None

    return change


def booked(source: str, count: int) -> Callable[[list[Row]], None]:
    """Return a change of the number of discarded values in a row of the ledger."""

    def change(rows: list[Row]) -> None:
        (row,) = [row for row in rows if row["source"].endswith(source)]
        row["discarded"] = [("unknown_field", count)] if count else []

    return change


FIRST, SECOND, OTHER = f"0/{0:019}", f"0/{3:019}", f"1/{0:019}"
IN_A_TOPIC: dict[str, tuple[list[tuple[str, Callable[[list[Row]], None]]], str, list[str]]] = {
    "a value is gone where none was discarded": (
        [(BRONZE, nulls(4))], "0", ["offset 4: unit 0: properties is null in bronze, but {\"a\": \"b\"} landed"]),
    "a value more is gone than were discarded": (
        [(BRONZE, nulls(3))], "0", ["offset 3: unit 0: properties is null in bronze, but {\"a\": \"b\"} landed"]),
    "values of several messages are gone": (
        [(BRONZE, nulls(3, 4, 5)), (LEDGER, booked(SECOND, 1))], "0",
        ["offsets from 3: the ledger has 1 discarded values, but 3 are missing",
         "offset 3: unit 0: properties is null in bronze, but {\"a\": \"b\"} landed"]),
    "a value is gone in a range with discarded ones": (
        [(BRONZE, nulls(2))], "0", ["offsets from 0: the ledger has 5 discarded values, but 6 are missing"]),
    "more were discarded than are missing": (
        [(LEDGER, booked(FIRST, 6))], "0", ["offsets from 0: the ledger has 6 discarded values, but 5 are missing"]),
    "the last range has too many": (
        [(LEDGER, booked(SECOND, 1))], "0", ["offsets from 3: the ledger has 1 discarded values, but 0 are missing"]),
    "another partition has too few": (
        [(LEDGER, booked(OTHER, 2))], "1", ["offsets from 0: the ledger has 2 discarded values, but 3 are missing"]),
}  # fmt: skip


@pytest.mark.all
def test_each_range_of_a_topic_is_missing_what_it_has_discarded(of_topic: tuple[TopicLake, Verify]) -> None:
    lake, verify = of_topic
    assert [sum(dict(row["discarded"]).values()) for row in lake.rows(LEDGER)].count(0) == 1
    assert verify() == (0, {})
    for more in (("--sample", "1"), ("--sample", "5"), ("--sample", "100")):
        assert verify(*more) == (0, {})
    for name, (changes, source, said) in IN_A_TOPIC.items():
        with put_back(lake.settings):
            for table, change in changes:
                lake.edit(table, change)
            exit_code, details = verify()
        assert (exit_code, list(details)) == (1, [source]), name
        assert [text for text in said if text not in details[source]] == [], (name, details)


@pytest.mark.all
def test_a_sample_is_of_messages_that_are_read(of_topic: tuple[TopicLake, Verify], kafka: KafkaServer) -> None:
    lake, verify = of_topic
    lake.edit(LEDGER, booked(FIRST, 0))
    lake.edit(BRONZE, nulls(5))
    kafka.delete_records(lake.topic, 0, 5)
    kafka.delete_records(lake.topic, 1, 1)
    exit_code, details = verify("--sample", "1")
    assert exit_code == 1
    assert "offset 5: unit 0: properties is null in bronze" in "\n".join(details["0"])


@pytest.mark.all
def test_a_part_of_a_range_may_lack_discarded_values(of_topic: tuple[TopicLake, Verify], kafka: KafkaServer) -> None:
    lake, verify = of_topic
    lake.edit(LEDGER, booked(SECOND, 1))
    lake.edit(BRONZE, nulls(3))
    assert verify() == (0, {})
    kafka.delete_records(lake.topic, 0, 4)
    assert verify()[0] == 0
    lake.edit(BRONZE, nulls(4, 5))
    exit_code, details = verify()
    assert (exit_code, details["0"][0]) == (1, "offsets from 3: the ledger has 1 discarded values, but 2 are missing")


@pytest.mark.all
def test_what_a_replay_discarded_is_not_of_the_range_of_its_message(
    of_topic: tuple[TopicLake, Verify], tmp_path: Path
) -> None:
    lake, verify = of_topic
    refund = event(8, MORE).replace("page_view", "refund").encode()
    lake.land({0: [refund]})
    Replayer(lake.settings, tmp_path / "today").replay()
    lake.land({0: [event(9, MORE).encode()]})
    assert verify() == (0, {})
    lake.edit(BRONZE, nulls(6))
    assert verify()[0] == 1  # it is a fault of the replay

    def discarded(rows: list[Row]) -> None:
        (row,) = [row for row in rows if row["replay"]]
        row["discarded"] = [("wrong_type", 1)]

    lake.edit(LEDGER, discarded)
    assert verify() == (0, {})


@pytest.mark.parametrize("path", ["", "$", "a", "$a", "$.a b", "$.a[", "$['a]", "$[-1]", "$.a.", "x$.a"])
def test_what_is_no_path(path: str) -> None:
    assert parse_path(path) is None


def test_a_text_in_its_place() -> None:
    record = r' { "a" : [ 1 , {"b\u0063" : "x, ]" , "d":[ ] } ], "e": { } } '
    for path, text in {
        "$.a": r'[ 1 , {"b\u0063" : "x, ]" , "d":[ ] } ]', "$.a[0]": "1", "$.a[1].bc": '"x, ]"', "$.a[1].d": "[ ]",
        "$.e": "{ }", "$['e']": "{ }",
    }.items():  # fmt: skip
        place = parse_path(path)
        assert place
        assert text_at(record, place) == text
