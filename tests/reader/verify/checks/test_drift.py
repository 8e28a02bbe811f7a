"""Verify distinguishes rescued values from wrong ones, and limits discarded values by the ledger."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.reader.verify.lake import BRONZE, LEDGER, Lake, Row
from typer.testing import CliRunner

from lakeproof.contracts import DriftPolicy
from lakeproof.settings import Settings
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


@pytest.fixture
def make(lake_settings: Settings, tmp_path: Path) -> Callable[[DriftPolicy], Lake]:
    def lake(policy: DriftPolicy) -> Lake:
        folder = tmp_path / "contracts"
        folder.mkdir()
        drift = f"  - property: driftPolicy\n    value: {policy}\n"
        (folder / "events.yaml").write_text(EVENTS.read_text().replace(EVENT_TIME, EVENT_TIME + drift))
        made = Lake(lake_settings.model_copy(update={"contracts": folder}))
        assert made.contract.drift is policy
        made.land({name: text.encode() for name, text in LANDED.items()})
        made.consume()
        return made

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
    policy: DriftPolicy, make: Callable[[DriftPolicy], Lake], verify: Verify
) -> None:
    lake = make(policy)
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


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, make: Callable[[DriftPolicy], Lake], verify: Verify) -> None:
    policy, plant, source, said = PLANTED[name]
    lake = make(policy)
    plant(lake)
    exit_code, details = verify(lake)
    assert exit_code == 1
    assert details.keys() == {source}
    assert any(said in text for text in details[source]), details


def test_of_a_part_no_more_may_be_missing_than_were_discarded(
    make: Callable[[DriftPolicy], Lake], verify: Verify
) -> None:
    lake = make(DriftPolicy.DISCARD)
    assert verify(lake, "--sample", "1") == (0, {})


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
