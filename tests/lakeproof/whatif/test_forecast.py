"""Forecasts equal the judge's results for the landed bytes, and count each landed unit once."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lakeproof.whatif.lakes import Lake, verdicts
from tests.lakes import embedded, undone
from tests.selection import examples, first_by_default

from consumer.sources.envelope import Envelope
from lakeproof.contracts import Contract, parse_contract
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.whatif.forecast import Effect, Forecast, forecast

HEAD = """\
apiVersion: v3.2.0
kind: DataContract
id: orders
version: VERSION
status: active
customProperties:
  - {property: eventTime, value: at}
  - {property: driftPolicy, value: POLICY}
schema:
  - name: orders
    properties:
      - {name: id, logicalType: string, required: true, primaryKey: true}
      - {name: at, logicalType: timestamp, required: true}
"""
FIELDS = [
    "{name: kind, logicalType: string, required: true, enum: [a, b]}",
    "{name: count, logicalType: integer, physicalType: int}",
    "{name: ratio, logicalType: number}",
    "{name: total, logicalType: number, physicalType: 'decimal(9,2)'}",
    "{name: ok, logicalType: boolean}",
    "{name: day, logicalType: date}",
    "{name: any, logicalType: string, physicalType: scalar}",
    "{name: place, logicalType: object, properties: [{name: a, logicalType: integer}, "
    "{name: t, logicalType: timestamp}]}",
    "{name: lines, logicalType: array, items: {logicalType: object, properties: [{name: n, logicalType: string}]}}",
    "{name: named, logicalType: map, map: {value: {logicalType: string, physicalType: scalar}}}",
    "{name: numbers, logicalType: array, items: {logicalType: integer, physicalType: int}}",
]
AT = "2026-11-21T06:00:00Z"


def contract_text(fields: list[str] = FIELDS, version: str = "1.0.0", policy: str = "freeze", more: str = "") -> str:
    head = HEAD.replace("VERSION", version).replace("POLICY", policy)
    return head + "".join(f"      - {field}\n" for field in fields) + more


def changed(*changes: tuple[str, str], version: str = "2.0.0", policy: str = "freeze", more: str = "") -> str:
    """Return the contract with changes, as another version."""
    text = contract_text(version=version, policy=policy, more=more)
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def contract_of(text: str) -> Contract:
    return parse_contract(text.encode(), "new.yaml", "orders")


def batch(*records: dict[str, Any]) -> bytes:
    return json.dumps(
        [{"id": str(number), "at": AT, "kind": "a"} | record for number, record in enumerate(records)]
    ).encode()


@pytest.fixture(scope="module")
def lasting_lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("forecast")
    made = Lake(embedded(folder / "lake"), folder, contract_text())
    made.apply()
    return made.settings


@pytest.fixture
def lake(lasting_lake: Settings, tmp_path: Path) -> Iterator[Lake]:
    with undone(lasting_lake):
        yield Lake(lasting_lake, tmp_path, contract_text())


def ask(lake: Lake, text: str, sample: int | None = None) -> Forecast:
    return forecast(lake.catalog, lake.settings, contract_of(text), sample)


def moves(found: Forecast) -> dict[tuple[str, str, str], int]:
    both = (found.bronze, found.dead_letters)
    return {(change.value, *sets): tally.units for counts in both for (change, *sets), tally in counts.moves.items()}


WIDER = ("physicalType: int}", "physicalType: long}")
ENUM = ("enum: [a, b]", "enum: [a, b, c]")
NOTE = "      - {name: note, logicalType: string}\n"


@pytest.mark.parametrize("kafka", first_by_default([False, True]), ids=["files", "kafka"])
@pytest.mark.parametrize(
    ("wrong", "new", "reason"),
    first_by_default(
        [
            ({"count": 2**40}, changed(WIDER), "out_of_range"),
            ({"kind": "c"}, changed(ENUM), "not_allowed"),
            ({"note": "hello"}, changed(more=NOTE), "unknown_field"),
        ]
    ),
    ids=["type", "enum", "missing field"],
)
def test_a_contract_that_is_put_right_takes_its_dead_letters(
    lake: Lake, wrong: dict[str, Any], new: str, reason: str, kafka: bool
) -> None:
    lake.land(batch({}, wrong, {"ok": 3}), batch(wrong, {}), kafka=kafka)
    found = ask(lake, new)
    assert moves(found) == {
        ("stays", "", ""): 2,
        ("to_bronze", reason, ""): 2,
        ("stays", "wrong_type", "wrong_type"): 1,
    }
    shown = found.dead_letters.moves[Effect.TO_BRONZE, reason, ""].examples
    letters = {(each["_source"], each["_position"]): each["reasons"][0] for each in lake.letters()}
    assert len(shown) == 2
    for example in shown:
        why = letters[example.source, example.position]
        assert (why["code"], why["path"], why["detail"]) == (reason, example.path, example.detail)
    assert found.unseen == ()


def test_rows_of_bronze_that_would_be_dead_letters_are_counted_by_reason_and_day(lake: Lake) -> None:
    lake.land(batch({"kind": "b"}, {"total": 1.5}, {"kind": "b", "total": 7}))
    lake.land(batch({"kind": "b"}, {}), day=1)
    found = ask(
        lake,
        changed(
            ("enum: [a, b]", "enum: [a]"), ("'decimal(9,2)'}", "'decimal(9,2)', logicalTypeOptions: {maximum: 5}}")
        ),
    )
    assert moves(found) == {
        ("to_dead_letters", "", "not_allowed"): 2,
        ("to_dead_letters", "", "not_allowed+out_of_range"): 1,
        ("stays", "", ""): 2,
    }
    by_day = {str(day): dict(each) for day, each in found.days().items()}
    assert by_day == {
        "2026-11-21": {"to_dead_letters": 2, "stays": 1},
        "2026-11-22": {"to_dead_letters": 1, "stays": 1},
    }
    first = found.bronze.moves[Effect.TO_DEAD_LETTERS, "", "not_allowed"].examples[0]
    assert first.source.startswith("batch-")
    assert (first.path, first.detail) == ("$.kind", '"b" is not an allowed value')


def test_batches_that_cannot_be_split_stay_and_those_without_bytes_are_not_judged(lake: Lake) -> None:
    lost = Envelope(None, "large.json", None, ("batch_too_large", "too many bytes"))
    changed_file = Envelope(b"", "changed.json", None, ("changed", "it was overwritten"))
    lake.land(b'[{"id": 1}, ', b"", b"7", b"\x1f\x8b no", lost, changed_file)
    found = ask(lake, changed(ENUM))
    assert moves(found) == {
        ("stays", "corrupt_batch", "corrupt_batch"): 2,
        ("stays", "empty_batch", "empty_batch"): 1,
        ("stays", "not_a_batch", "not_a_batch"): 1,
        ("not_judged", "batch_too_large", "batch_too_large"): 1,
        ("stays", "changed", "changed"): 1,
    }
    assert found.days().keys() == {None, *(day for day in found.days() if day)}


def test_a_batch_that_can_be_split_now_is_counted_with_its_units(lake: Lake) -> None:
    """The batch may be from an earlier version, which supported fewer forms of batches."""
    lake.land(
        Envelope(batch({}, {"kind": "c"}, {"ok": 1}), "old.json", None, ("corrupt_batch", "of an earlier version"))
    )
    found = ask(lake, changed(ENUM))
    assert moves(found) == {("split", "corrupt_batch", ""): 1}
    assert found.dead_letters.split_units == Counter({"": 2, "wrong_type": 1})


def test_a_record_is_judged_as_one_and_never_split(lake: Lake) -> None:
    """The bytes of a dead letter that is a record may be an array, white space, or several values."""
    lake.land(b'[[{"id": "1"}], "x", {"a": }, 7, nul, {"kind": "c"}]')
    now = {
        each["_position"]: "+".join(sorted({reason["code"] for reason in each["reasons"]})) for each in lake.letters()
    }
    assert now == {
        0: "not_an_object",
        1: "not_an_object",
        2: "malformed_record",
        3: "not_an_object",
        4: "malformed_record",
    } | {5: "missing_field+not_allowed"}
    assert moves(ask(lake, changed(ENUM))) == {
        ("stays", "not_an_object", "not_an_object"): 3,
        ("stays", "malformed_record", "malformed_record"): 2,
        ("other_reasons", "missing_field+not_allowed", "missing_field"): 1,
    }


@pytest.mark.all
def test_a_dead_letter_without_the_number_of_its_attempt_landed_so(lake: Lake) -> None:
    lake.land(batch({"kind": "c"}, {"kind": "c"}), b"[{]")
    lake.without_attempts()
    assert moves(ask(lake, changed(ENUM))) == {
        ("to_bronze", "not_allowed", ""): 2,
        ("stays", "corrupt_batch", "corrupt_batch"): 1,
    }
    lake.close([letter | {"_attempt": 1} for letter in lake.letters() if letter["_position"] == 1])
    assert moves(ask(lake, changed(ENUM))) == {
        ("to_bronze", "not_allowed", ""): 1,
        ("stays", "corrupt_batch", "corrupt_batch"): 1,
    }


def test_closed_dead_letters_count_in_bronze_only(lake: Lake) -> None:
    lake.land(batch({"kind": "c"}, {"kind": "c"}, {"kind": "d"}))
    first, second, third = sorted(lake.letters(), key=lambda each: each["_position"])
    lake.close([first])
    lake.close([second], "failed")
    lake.close([third], "parked")
    assert moves(ask(lake, changed(ENUM))) == {
        ("to_bronze", "not_allowed", ""): 1,
        ("stays", "not_allowed", "not_allowed"): 1,
    }
    lake.close([second])
    assert moves(ask(lake, changed(ENUM))) == {("stays", "not_allowed", "not_allowed"): 1}


@pytest.mark.all
def test_what_is_being_committed_is_left_out(lake: Lake) -> None:
    lake.land(batch({"kind": "c"}, {}))
    lake.close(lake.letters(), ledger=False)  # an interrupted replay: its rows are not in bronze yet
    lake.land(batch({"kind": "c"}, {"kind": "b"}), ledger=False)
    assert moves(ask(lake, changed(ENUM))) == {("to_bronze", "not_allowed", ""): 1, ("stays", "", ""): 1}


def test_attempts_that_were_dropped_are_missed(lake: Lake) -> None:
    lake.land(batch({"kind": "c"}))
    lake.close(lake.letters())
    lake.catalog.drop_table(lake.tables.attempts)
    with pytest.raises(LakeproofError, match=r"dead_letters\.orders_attempts does not exist"):
        ask(lake, changed(ENUM))


def test_nothing_has_landed(lake: Lake, lake_settings: Settings, tmp_path: Path) -> None:
    found = ask(lake, changed(ENUM))
    assert (moves(found), found.bronze.rows, found.days()) == ({}, 0, {})
    other = Lake(lake_settings.model_copy(update={"home": tmp_path / "other"}), tmp_path, contract_text())
    assert moves(forecast(other.catalog, other.settings, contract_of(contract_text()))) == {}


@pytest.mark.all
def test_a_sample_is_evenly_spaced_and_the_same_each_time(lake: Lake) -> None:
    for _ in range(3):
        lake.land(batch(*({"kind": "ab"[number % 2]} for number in range(100))), batch(*({"kind": "c"},) * 10))
    new = changed(("enum: [a, b]", "enum: [a, c]"))
    found = ask(lake, new, 60)
    assert (found.bronze.rows, found.bronze.chosen, found.bronze.judged, found.bronze.sampled) == (300, 60, 60, True)
    assert (found.dead_letters.rows, found.dead_letters.sampled) == (30, False)
    assert found == ask(lake, new, 60)
    whole = ask(lake, new)
    assert not whole.sampled
    assert whole.bronze.units(Effect.TO_DEAD_LETTERS) == 150
    assert 100 < found.bronze.scaled(found.bronze.units(Effect.TO_DEAD_LETTERS)) < 200
    sources = {each["_source"] for each in lake.rows(lake.tables.bronze)}
    every_tenth = ask(lake, new, 30)
    assert every_tenth.bronze.judged == 30
    assert len(sources) == 3


def test_a_sample_has_as_many_rows_as_were_asked_for(lake: Lake) -> None:
    for _ in range(3):
        lake.land(batch(*({},) * 100))
    for sample in (1, 7, 299, 300, 10_000):
        assert ask(lake, changed(ENUM), sample).bronze.judged == min(sample, 300)


def test_rows_are_judged_under_the_names_that_records_had(lake: Lake) -> None:
    lake.land(batch({"any": "x", "count": 3}, {}))
    renamed = changed(
        (
            "{name: any, logicalType: string, physicalType: scalar}",
            "{name: other, logicalType: string, physicalType: scalar, "
            "customProperties: [{property: renamedFrom, value: any}]}",
        )
    )
    assert moves(ask(lake, renamed)) == {("to_dead_letters", "", "unknown_field"): 1, ("stays", "", ""): 1}
    lake.apply(renamed)
    lake.land(batch({"other": "x"}))
    assert moves(ask(lake, renamed)) == {("to_dead_letters", "", "unknown_field"): 1, ("stays", "", ""): 2}


@pytest.mark.all
def test_values_of_dropped_fields_are_judged(lake_settings: Settings, tmp_path: Path) -> None:
    """Whether the drop is applied or not."""
    old = "{name: old, logicalType: string, deprecated: true}"
    within = "{name: o, logicalType: object, properties: [{name: n, logicalType: string}, " + old + "]}"
    before = contract_text(["{name: kind, logicalType: string}", old, within])
    lake = Lake(lake_settings, tmp_path, before)
    lake.apply()
    lake.land(batch({"old": "z"}, {"o": {"old": "z"}}, {"o": {"n": "z"}}))
    dropped = before.replace("version: 1.0.0", "version: 2.0.0").replace(
        "deprecated: true", "customProperties: [{property: dropped, value: true}]"
    )
    expected = {("to_dead_letters", "", "unknown_field"): 2, ("stays", "", ""): 1}
    assert moves(ask(lake, dropped)) == expected
    lake.apply(dropped)
    assert moves(ask(lake, dropped)) == expected
    back = before.replace("version: 1.0.0", "version: 3.0.0").replace("deprecated: true", "enum: [a]")
    assert moves(ask(lake, back)) == {("to_dead_letters", "", "not_allowed"): 2, ("stays", "", ""): 1}


def test_what_the_columns_cannot_tell_is_said(lake_settings: Settings, tmp_path: Path) -> None:
    before = contract_text(
        [
            "{name: f, logicalType: number, physicalType: float}",
            "{name: old, logicalType: string, deprecated: true}",
            "{name: t, logicalType: timestamp, logicalTypeOptions: "
            "{format: \"yyyy-MM-dd'T'HH:mm:ss[XXX]\", defaultTimezone: UTC}}",
        ]
    )
    lake = Lake(lake_settings, tmp_path, before)
    lake.apply()
    lake.land(b'[{"id": "1", "at": "2026-11-21T06:00:00Z", "f": 0.1, "old": null, "t": "2026-11-21T06:00:00+01:00"}]')
    after = (
        before.replace("version: 1.0.0", "version: 2.0.0")
        .replace("physicalType: float", "physicalType: double")
        .replace("deprecated: true", "customProperties: [{property: dropped, value: true}]")
        .replace('[XXX]", defaultTimezone: UTC', 'XXX"')
    )
    said = ask(lake, after).unseen
    assert [text.split(" ")[0].rstrip(":") for text in said] == ["f", "t", "old"]


def test_allowed_values_of_columns_without_the_landed_text(lake_settings: Settings, tmp_path: Path) -> None:
    """A column has 19.00, 1 and a time for 19, 1.0 and the text of the time, which alone are allowed."""
    text = contract_text(
        [
            FIELDS[0],
            "{name: total, logicalType: number, physicalType: 'decimal(5,2)', enum: [7, 19]}",
            "{name: f, logicalType: number, physicalType: float, enum: [1.0]}",
            "{name: d, logicalType: number, enum: [1.0]}",
            f"{{name: t, logicalType: timestamp, enum: [{AT}]}}",
            "{name: n, logicalType: integer, enum: [1, 2]}",
            "{name: o, logicalType: object, properties: [{name: d, logicalType: number, enum: [1.0]}]}",
        ]
    )
    lake = Lake(lake_settings, tmp_path, text)
    lake.apply()
    lake.land(batch({"total": 19, "f": 1.0, "d": 1.0, "t": AT, "n": 2, "o": {"d": 1.0}}))
    more = text.replace("version: 1.0.0", "version: 2.0.0").replace("enum: [1.0]", "enum: [1.0, 2.0]")
    for same in (text, more):
        found = ask(lake, same)
        assert (moves(found), found.unseen) == ({("stays", "", ""): 1}, ())
    found = ask(lake, more.replace("[7, 19]", "[7]").replace("[1, 2]", "[1]"))
    assert moves(found) == {("to_dead_letters", "", "not_allowed"): 1}
    assert found.bronze.moves[Effect.TO_DEAD_LETTERS, "", "not_allowed"].examples[0].path == "$.n"
    assert [said.partition(":")[0] for said in found.unseen] == ["total"]


HOSTILE = ['"', "\\", "\n\t\x00\x7f", "é☃\U0001f600", "']\\'", "\\u0041", "$.a", "", "a,b:{}[]"]


@pytest.mark.all
def test_hostile_texts_and_keys_come_back_as_they_were(lake_settings: Settings, tmp_path: Path) -> None:
    policy = contract_text(policy="rescue")
    lake = Lake(lake_settings, tmp_path, policy)
    lake.apply()
    records: list[dict[str, Any]] = [
        {"any": text, "named": {text: text}, "lines": [{"n": text}, None], text or "x": 1} for text in HOSTILE
    ]
    records += [
        {"count": "7", "place": {"a": "x", "more": {text: [text]}}, "numbers": [1, None, "2"]} for text in HOSTILE
    ]
    landed = batch(*records)
    lake.land(landed)
    frozen = contract_text(version="2.0.0", policy="freeze")
    assert_equal(lake, frozen, landed)
    assert_equal(lake, contract_text(version="3.0.0", policy="rescue"), landed)


def assert_equal(lake: Lake, text: str, *batches: bytes) -> None:
    """Check that a forecast equals the new contract's judge on the landed bytes, unit by unit."""
    before, after = verdicts(lake.contract, *batches), verdicts(contract_of(text), *batches)
    expected: Counter[tuple[str, str, str]] = Counter()
    for (_, _, old), (_, _, new) in zip(before, after, strict=True):
        if not old:
            expected["to_dead_letters" if new else "stays", "", new] += 1
        elif not new:
            expected["to_bronze", old, ""] += 1
        else:
            expected["stays" if old == new else "other_reasons", old, new] += 1
    assert moves(ask(lake, text)) == expected


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(["a", "b", "c", None, 7]),
    "count": st.sampled_from([0, -1, 7, 2**31, 2**40, 1.5, "7", None]),
    "ratio": st.sampled_from([0.1, 1e300, -0.0, 3, 1e-7, "x", None]),
    "total": st.sampled_from([1.5, 0, -0.01, 1234567.89, 12345678.9, 0.001, None]),
    "ok": st.sampled_from([True, False, "true", None]),
    "day": st.sampled_from(["2026-11-21", "0001-01-01", "2026-02-30", 5, None]),
    "any": st.sampled_from(["x", 7, 7.50, True, "", "\x00\"\\'", {}, None]),
    "place": st.sampled_from([{}, {"a": 1}, {"a": "1", "b": 2}, {"t": AT}, {"t": "x"}, [], None]),
    "lines": st.sampled_from([[], [None], [{"n": "x"}, None], [{}], [{"n": 5, "'": {}}], [7], {}, None]),
    "named": st.sampled_from([{}, {"x": 1, "": None}, {"\n'": "y"}, {"x": []}, 5, None]),
    "numbers": st.sampled_from([[], [1, None], [2**31], ["1"], None]),
    "note": st.sampled_from(["n", 5, None]),
    "at": st.sampled_from(["2026-11-21T06:00:00.123456+01:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "x"]),
}
RECORDS = st.fixed_dictionaries({}, optional=VALUES)
LIMITED = "physicalType: int, logicalTypeOptions: {minimum: 0}}"
RULE = "    quality:\n      - {type: sql, name: few, query: 'count < 7 OR ratio > 0.1'}\n    properties:\n"
CHANGES = [
    ("    properties:\n", RULE),
    WIDER,
    ENUM,
    ("enum: [a, b]", "enum: [a]"),
    ("physicalType: int}", LIMITED),
    ("'decimal(9,2)'}", "'decimal(12,2)', logicalTypeOptions: {maximum: 2}}"),
    (
        "{name: ratio, logicalType: number}",
        "{name: ratio, logicalType: number, logicalTypeOptions: {exclusiveMinimum: 0.1}}",
    ),
    ("physicalType: scalar}\n", "physicalType: scalar, logicalTypeOptions: {minLength: 2, pattern: '^[x7]'}}\n"),
    ("logicalType: date}", "logicalType: date, logicalTypeOptions: {minimum: '2026-01-01'}}"),
    ("{name: a, logicalType: integer}", "{name: a, logicalType: integer}, {name: b, logicalType: integer}"),
    (
        "at, logicalType: timestamp, required: true}",
        "at, logicalType: timestamp, required: true, logicalTypeOptions: {minimum: '2026-11-21T05:00:00.123457Z'}}",
    ),
]


@pytest.mark.parametrize(
    "policies",
    [
        ("rescue", "freeze"),
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in (("freeze", "rescue"), ("freeze", "freeze"), ("rescue", "rescue"))
        ),
    ],
)
def test_forecasts_equal_what_the_judge_says_of_the_landed_bytes(
    lake_settings: Settings, tmp_path: Path, policies: tuple[str, str]
) -> None:
    """Always for dead letters; for rows of bronze unless some are reported as not seen."""
    lake = Lake(lake_settings, tmp_path, contract_text(policy=policies[0]))
    lake.apply()
    landed: list[bytes] = []
    tried = 0

    # Each example judges the batches of all earlier ones.
    @hypothesis.settings(max_examples=examples(8))
    @given(
        st.lists(st.lists(RECORDS, max_size=8), min_size=1, max_size=2),
        st.lists(st.sampled_from(CHANGES), max_size=3, unique=True),
        st.booleans(),
    )
    def check(batches: list[list[dict[str, Any]]], changes: list[tuple[str, str]], with_note: bool) -> None:
        nonlocal tried
        tried += 1
        new = [batch(*records) for records in batches]
        landed.extend(new)
        lake.land(*new)
        text = contract_text(version=f"{tried + 1}.0.0", policy=policies[1], more=NOTE if with_note else "")
        for old, other in changes:
            text = text.replace(old, other, 1)
        assert ask(lake, text).unseen == ()
        assert_equal(lake, text, *landed)

    check()
