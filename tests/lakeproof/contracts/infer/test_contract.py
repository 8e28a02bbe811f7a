"""Inferred contracts: they pass the check, the samples meet them, and they state what is uncertain."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeproof.contracts import (
    ISO_8601,
    Contract,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    TimeForm,
    TimeFormat,
    parse_contract,
)
from lakeproof.contracts.infer.contract import Inferred, infer
from lakeproof.contracts.tokens import MAX_DEPTH
from lakeproof.errors import UsageError
from lakeproof.judge.batch import Judge

AT = '"2026-11-21T12:30:00Z"'
KEYS = ["a", "b", "c", "A", "id", "a-b", "_x", "ä", "", "null", "yes", "name", "1"]
TOKENS = [
    "null", "true", "false", "0", "-0", "1", "-9223372036854775808", "9223372036854775807", "9223372036854775808",
    "1" * 38, "1" * 39, "1" * 400, "1.5", "1.50", "1e2", "1e400", "-0.0", "1E-5", '""', '"a"', '"yes"', '"1"', '"null"',
    AT, '"2026-11-21"', '"2026-11-21T12:30Z"', '"2026-11-21T12:30:00+0100"', '"2026-11-21T12:30:00.123456000-01"',
    '"2026-11-21T12:30:00.123456789Z"', '"2026-11-21T12:30:00"', '"2026-11-21 12:30:00Z"', '"2026-11-21T24:00:00Z"',
    '"2026-11-21T12:30:450Z"', '"2026-11-21T12:30:00+01:60"', '"0001-01-01T00:00:00+01:00"', '"0000-01-01"',
    '"2026-02-30"', '"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59-01:00"', '"2026-11-21T12:30:00+24:00"',
    '"0b6b2f5c-2f40-4d5c-9e0a-5d1f1f0a2b3c"', '"\\u0000"', '"\\u2028"', '"\\ud83d\\ude00"', "{}", "[]",
]  # fmt: skip
tokens = (
    st.sampled_from(TOKENS)
    | st.integers().map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.text(max_size=5).map(json.dumps)
)
keys = st.sampled_from(KEYS) | st.text(max_size=3)


def an_object(fields: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in fields.items()) + "}"


values = st.recursive(
    tokens,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.dictionaries(keys, inner, max_size=4).map(an_object)
    ),
    max_leaves=8,
)


@st.composite
def records(draw: st.DrawFn) -> list[str]:
    """Generate records as text. Most values of a field are of one kind."""
    names = draw(st.lists(keys.filter(lambda name: name.lower() != "at"), max_size=5, unique=True))
    kinds: dict[str, st.SearchStrategy[str]] = {}
    for name in names:
        few = draw(st.lists(values, min_size=1, max_size=3))
        kinds[name] = st.sampled_from(few) if draw(st.booleans()) else values
    found = []
    for _ in range(draw(st.integers(1, 6))):
        present = {name: draw(kind) for name, kind in kinds.items() if draw(st.integers(0, 3))}
        found.append(an_object({"at": AT, **present}))
    return found


def batch(texts: Sequence[str], form: str) -> bytes:
    return ("\n".join(texts) if form == "lines" else f"[{', '.join(texts)}]").encode()


def inferred(texts: Sequence[str], form: str = "array", **options: Any) -> tuple[Contract, Inferred]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / ("sample.json.gz" if form == "gzip" else "sample.json")
        path.write_bytes(gzip.compress(batch(texts, form)) if form == "gzip" else batch(texts, form))
        asked = {"key": (), "event_time": None, "max_records": 10_000} | options
        found = infer("things", path, **asked)
    return parse_contract(found.text.encode(), "things.yaml", "things"), found


def field(contract: Contract, name: str) -> Field:
    return next(field for field in contract if field.name == name)


def notes(found: Inferred, name: str = "") -> str:
    return " ".join(text for path, text in found.notes if path == name)


@settings(deadline=None)
@given(records(), st.sampled_from(["array", "lines", "gzip"]))
def test_the_samples_meet_the_contract(texts: list[str], form: str) -> None:
    contract, found = inferred(texts, form)
    judged = list(Judge(contract).judge(batch(texts, form)))
    assert sum(len(each.good) for each in judged) == found.records == len(texts)
    assert not any(each.bad.reasons.to_pylist() for each in judged)
    assert found.left_out == ()
    drift = [values for each in judged if each.good.drift is not None for values in each.good.drift.to_pylist()]
    assert (contract.drift is DriftPolicy.RESCUE) == any(drift)  # only if there are values to rescue


@given(tokens)
def test_one_value_has_the_narrowest_type_that_takes_it(token: str) -> None:
    contract, _ = inferred([an_object({"at": AT, "f": token})])
    if (found := field(contract, "f")).time != ISO_8601:
        (judged,) = Judge(replace(contract, fields=(found,))).judge(f'{{"f": {token}}}'.encode())
        assert len(judged.good) == 1
        return
    kinds = [
        PrimitiveType.BOOLEAN, PrimitiveType.LONG, DecimalType(38, 0), PrimitiveType.DOUBLE, PrimitiveType.TIMESTAMP,
        PrimitiveType.DATE, PrimitiveType.STRING, PrimitiveType.SCALAR,
    ]  # fmt: skip
    if token in ("{}", "[]", "null"):
        return
    for kind in kinds:
        (judged,) = Judge(Contract("f", "1", "", (Field("f", kind),), (), "f")).judge(f'{{"f": {token}}}'.encode())
        if len(judged.good) and not (kind == DecimalType(38, 0) and not token.lstrip("-").isdigit()):
            assert field(contract, "f").type == kind
            return
    raise AssertionError(token)


def several(count: int, **texts: Any) -> list[str]:
    """Return records with fields, each a text or a function from the record's number to a text."""
    made = [{name: text(number) if callable(text) else text for name, text in texts.items()} for number in range(count)]
    return [an_object({"at": AT} | record) for record in made]


def test_what_is_inferred_and_what_is_not_certain() -> None:
    address = '{"city": "x", "geo": {"lat": 1.5}}'
    contract, found = inferred(
        several(
            200,
            id=lambda number: f'"i{number}"',
            channel=lambda number: '"web"' if number % 3 else '"yes"',
            total=lambda number: f"{number}.50",
            device='"0b6b2f5c-2f40-4d5c-9e0a-5d1f1f0a2b3c"',
            address=address,
            lines=lambda number: f'[{{"article": "{number}", "count": 1}}, {{"article": "-{number}"}}]',
            headers='{"user-agent": "x", "accept": "y"}',
            mixed=lambda number: "1" if number % 2 else '"a"',
            local='"2026-11-21 12:30:00"',
            nothing="null",
        )
    )
    string, long, double = PrimitiveType.STRING, PrimitiveType.LONG, PrimitiveType.DOUBLE
    geo = ObjectType((Field("lat", double, required=True),))
    assert {each.name: each.type for each in contract} == {
        "at": PrimitiveType.TIMESTAMP,
        "id": string,
        "channel": string,
        "total": double,
        "device": string,
        "address": ObjectType((Field("city", string, required=True), Field("geo", geo, required=True))),
        "lines": ListType(ObjectType((Field("article", string, required=True), Field("count", long)))),
        "headers": MapType(string),
        "mixed": PrimitiveType.SCALAR,
        "local": PrimitiveType.TIMESTAMP,
        "nothing": PrimitiveType.SCALAR,
    }
    assert [each.name for each in contract if not each.required] == ["nothing"]
    assert field(contract, "channel").allowed == ("web", "yes")
    assert field(contract, "device").constraints.pattern
    assert (contract.drift, contract.primary_key, contract.event_time) == (DriftPolicy.FREEZE, (), "at")
    assert "use --key id" in notes(found)
    assert "decimal(18,2)" in notes(found, "total")
    assert "have no UTC offset" in notes(found, "local")
    assert "only null" in notes(found, "nothing")
    assert "mixed types" in notes(found, "mixed")
    assert "Remove the enum" in notes(found, "channel")


def test_a_name_may_end_in_the_unit_of_its_time() -> None:
    contract, found = inferred(several(20, ended_at_ms="1795264200123", seen_ts_us="1795264200123456", price="1.5"))
    assert field(contract, "ended_at_ms").time == TimeForm(TimeFormat.EPOCH_MS)
    assert field(contract, "seen_ts_us").time == TimeForm(TimeFormat.EPOCH_US)
    assert "more than 1 decimal place." in notes(found, "price")


def test_what_does_not_fit_is_rescued_and_told() -> None:
    texts = several(3, f="1", _x="1") + several(1, f="{}", F="2") + several(1, f="[1]")
    contract, found = inferred(texts)
    assert contract.drift is DriftPolicy.RESCUE
    assert field(contract, "f") == Field("f", PrimitiveType.LONG)
    assert "3 values are scalars, and 2 are objects and arrays" in notes(found, "f")
    assert "cannot be that of a column" in notes(found, "_x")
    assert "f would be the same column" in notes(found, "F")
    assert "the drift policy is rescue" in notes(found)


def test_objects_of_many_keys_are_maps() -> None:
    contract, found = inferred(several(100, sparse=lambda number: f'{{"k{number}": {number}}}'))
    assert field(contract, "sparse").type == MapType(PrimitiveType.LONG)
    assert "100 different keys" in notes(found, "sparse")
    contract, found = inferred(several(1_000, sparse=lambda number: f'{{"k{number}": {{"a": {number}}}}}'))
    assert field(contract, "sparse").type == MapType(ObjectType((Field("a", PrimitiveType.LONG, required=True),)))
    assert "very many keys" in notes(found, "sparse")
    with pytest.raises(UsageError, match="more than 300 different fields"):
        inferred([an_object({"at": AT, f"k{number}": "1"}) for number in range(301)])


def test_what_is_nested_too_deeply_is_rescued() -> None:
    for deep in ('{"a":' * 30 + "1" + "}" * 30, "[" * 30 + "1" + "]" * 30, '{"a":' * 400 + "[]" + "}" * 400):
        texts = several(2, deep=deep, ok="1")
        contract, found = inferred(texts)
        assert contract.drift is DriftPolicy.RESCUE
        assert any("nested too deeply" in text for _, text in found.notes)
        (judged,) = Judge(contract).judge(batch(texts, "array"))
        assert (len(judged.good), len(judged.bad)) == (2, 0)


def test_what_no_contract_accepts_for_its_depth_decides_nothing() -> None:
    deepest, deeper = ("[" * levels + "]" * levels for levels in (MAX_DEPTH - 1, MAX_DEPTH))
    contract, found = inferred([*several(3, k="1"), *several(1, k=deeper)], "lines")
    assert found.left_out == (f"sample.json: unit 3: nested more than {MAX_DEPTH} levels deep",)
    assert (found.records, contract.drift) == (3, DriftPolicy.FREEZE)
    assert inferred([*several(3, k="1"), *several(1, k=deepest)], "lines")[1].records == 4


def test_the_key() -> None:
    texts = several(3, id='"same"', n="1", o="{}")
    contract, found = inferred(texts, key=("n", "id"))
    assert contract.primary_key == found.primary_key == ("n", "id")
    assert contract.silver
    assert "2 records repeat the key" in notes(found, "n, id")
    contract, found = inferred([*texts, an_object({"at": AT})], key=("id",))
    assert not contract.silver
    assert "not every record has this field of the key" in notes(found, "id")
    for key, says in (("nobody", "there is no such field"), ("o", "the field is an map")):
        with pytest.raises(UsageError, match=f"--key {key}: {says}") as caught:
            inferred(texts, key=(key,))
        assert caught.value.hint


def test_the_event_time() -> None:
    inner = f'{{"created_at": {AT}}}'
    texts = [an_object({"meta": inner, "ts": '"2026-11-21T12:30:00"', "seen": AT})]
    contract, found = inferred(texts)
    assert contract.event_time == "meta.created_at"
    assert "Other timestamps: ts, seen" in notes(found, "meta.created_at")
    assert inferred(texts, event_time="seen")[0].event_time == "seen"
    texts = [an_object({"created_at": AT, "ts": '"2026-11-21T12:30:00.1234567Z"', "seen": AT})]
    with pytest.raises(UsageError, match=r"--event-time ts: .* more than microseconds") as caught:
        inferred(texts, event_time="ts")
    assert "created_at, seen" in caught.value.hint
    with pytest.raises(UsageError, match=r"No field of the samples is a timestamp\. ts: .* more than microseconds"):
        inferred([an_object({"ts": '"2026-11-21T12:30:00.1234567Z"'})])
    # A field in each record is preferred to a field with a better name.
    texts = [an_object({"event_time": AT, "x": AT}), an_object({"x": AT})]
    assert inferred(texts)[0].event_time == "x"


@pytest.mark.parametrize("day", ['"2026-11-21"', AT, "1", "{}"])
def test_a_field_with_the_name_of_the_partition_is_rescued(day: str) -> None:
    fields = {"ts": AT, "ts_day": day, "a": "1"}
    for text, path in ((an_object(fields), "ts"), (an_object({"o": an_object(fields)}), "o.ts")):
        contract, found = inferred([text], event_time=path)
        assert contract.event_time == path
        assert contract.drift is DriftPolicy.RESCUE
        assert notes(found, f"{path}_day").startswith("not described, because the tables have a partition")
        assert "_day" not in notes(found, path)
        (judged,) = Judge(contract).judge(batch([text], "array"))
        assert (len(judged.good), len(judged.bad)) == (1, 0)


def test_a_folder_and_what_no_contract_can_accept(tmp_path: Path) -> None:
    for name, content in {
        "1.json": b'[{"at": %s, "n": 1}, 5, {"n": 1, "n": 2}]' % AT.encode(),
        "dt=1/2.ndjson": b'{"at": %s, "n": 2}\r\n\n{"at": "\xff"}\n{"at": tru}\n' % AT.encode(),
        "dt=1/3.json.gz": b"no gzip",
        "4.json": b"[{}",
        "5.json": b"",
        "_hidden/6.json": b"nothing",
        ".part": b"nothing",
        "7.json": b"\xef\xbb\xbf" + b'{"at": %s,\n"n": 3}' % AT.encode(),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    found = infer("things", tmp_path, (), None, 100)
    assert (found.records, found.files, found.fields) == (3, 6, 2)
    told = [line.split(": ")[:3] for line in found.left_out]
    assert [line[:2] for line in told] == [
        ["1.json", "unit 1"], ["1.json", "unit 2"], ["4.json", "not JSON"], ["5.json", "not JSON"],
        ["dt=1/2.ndjson", "unit 1"], ["dt=1/2.ndjson", "unit 2"], ["dt=1/3.json.gz", "not gzip"],
    ]  # fmt: skip
    assert [line[2] for line in told[:2]] == ["not an object", "duplicate key"]


def test_samples_that_have_no_records(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    for path, says in ((tmp_path, "No records found"), (tmp_path / "none", "No file or folder found")):
        with pytest.raises(UsageError, match=says) as caught:
            infer("things", path, (), None, 100)
        assert caught.value.hint
    (tmp_path / "x.json").write_text("[1")
    with pytest.raises(UsageError, match=r"No records found in .*\. x.json: not JSON"):
        infer("things", tmp_path, (), None, 100)


def test_no_more_records_are_read_than_asked() -> None:
    contract, found = inferred(several(5, n=lambda number: "1" if number < 3 else "true"), max_records=3)
    assert (found.records, field(contract, "n").type) == (3, PrimitiveType.LONG)
    assert "only the first 3 records were read" in notes(found)
    assert "only the first" not in notes(inferred(several(3, n="1"), max_records=3)[1])


def test_allowed_values_need_enough_records() -> None:
    for count, expected in ((40, ()), (60, ("a", "b"))):
        contract, _ = inferred(several(count, f=lambda number: '"a"' if number % 2 else '"b"'))
        assert field(contract, "f").allowed == expected
    contract, _ = inferred(several(100, f=lambda number: f'"{number % 13}"', g='"one"'))
    assert {field(contract, name).allowed for name in "fg"} == {()}


FEW = Fraction(5, 100)


def test_allowed_values_are_read_as_they_were_written() -> None:
    values = ["a\x85b", "\x85", "c", "\u2028", "\ufeff"]
    samples = several(60, at=AT, k=lambda number: json.dumps(values[number % 5]))
    contract, found = inferred(samples)
    assert field(contract, "k").allowed == tuple(sorted(values))
    assert not any(len(judged.bad) for judged in Judge(contract).judge(batch(samples, "array")))
    assert yaml.safe_load(found.text)["schema"][0]["properties"][1]["enum"] == [
        {"value": each} for each in sorted(values)
    ]


def test_the_majority_decides_and_the_others_are_reported() -> None:
    texts = several(
        200,
        total=lambda number: '"n/a"' if number == 7 else f"{number}.5",
        ordered_at=lambda number: '""' if number == 8 else AT,
        flag=lambda number: "{}" if number in (9, 10) else "true",
        code=lambda number: "5" if number < 10 else '"a"',
        mixed=lambda number: "5" if number < 11 else '"a"',
    )
    contract, found = inferred(texts, event_time="ordered_at", tolerate=FEW)
    assert {each.name: each.type for each in contract if each.name != "at"} == {
        "total": PrimitiveType.DOUBLE,
        "ordered_at": PrimitiveType.TIMESTAMP,
        "flag": PrimitiveType.BOOLEAN,
        "code": PrimitiveType.STRING,
        "mixed": PrimitiveType.SCALAR,
    }
    assert all(each.required for each in contract)
    assert contract.drift is DriftPolicy.FREEZE
    assert '1 of 200 values do not fit: 1 text like "n/a".' in notes(found, "total")
    assert '1 of 200 values do not fit: 1 text like "".' in notes(found, "ordered_at")
    assert "2 of 200 values do not fit: 2 objects." in notes(found, "flag")
    assert "10 of 200 values do not fit: 10 integer like 5." in notes(found, "code")
    assert "--tolerate 0%" in notes(found)
    (judged,) = Judge(contract).judge(batch(texts, "array"))
    assert len(judged.bad) == 11
    contract, found = inferred(texts, event_time="at")  # without --tolerate, all samples meet the contract
    assert field(contract, "total").type is PrimitiveType.SCALAR
    assert field(contract, "ordered_at").type is PrimitiveType.STRING
    assert "do not fit" not in notes(found, "total")
    assert '199 of 200 values are a timestamp like "2026-11-21T12:30:00Z", not: 1 text like "".' in notes(
        found, "ordered_at"
    )
    with pytest.raises(UsageError, match=r"--event-time ordered_at: too few .*: 199 of 200 values"):
        inferred(texts, event_time="ordered_at")


@pytest.mark.parametrize(
    ("name", "token", "expected", "note"),
    [
        ("ts", "1795264200", TimeForm(TimeFormat.EPOCH_S), "seconds since 1970, 2026-11-21T12:30:00Z. Confirm"),
        ("ts", "1795264200.5", TimeForm(TimeFormat.EPOCH_S), "Confirm the format epoch_s"),
        ("created_at", "1795264200123", TimeForm(TimeFormat.EPOCH_MS), "milliseconds since 1970, 2026-11-21T12:30:00Z"),
        ("eventTime", "1795264200123456", TimeForm(TimeFormat.EPOCH_US), "Confirm the format epoch_us"),
        ("x", '"2026-11-21 12:30:00+01:00"', TimeForm(TimeFormat.SPACE_OFFSET), ""),
        ("x", '"2026-11-21 12:30:00"', TimeForm(TimeFormat.SPACE_LOCAL), "Confirm the time zone, UTC"),
        ("x", '"2026-11-21T12:30:00.5"', TimeForm(TimeFormat.T_LOCAL), "have no UTC offset"),
        ("x", '"2026-11-21"', TimeForm(TimeFormat.DATE), "midnight in UTC. Confirm the time zone"),
    ],
)
def test_the_form_of_a_time_is_proposed(name: str, token: str, expected: TimeForm, note: str) -> None:
    texts = [f'{{"{name}": {token}, "n": {number}}}' for number in range(40)] + [f'{{"{name}": true, "n": 1}}']
    contract, found = inferred(texts, tolerate=FEW)
    assert (contract.event_time, field(contract, name).time) == (name, expected)
    assert note in notes(found, name)
    assert "1 of 41 values do not fit: 1 boolean like true" in notes(found, name) or expected.format is TimeFormat.DATE
    (judged,) = Judge(contract).judge(batch(texts, "array"))
    assert (len(judged.good), len(judged.bad)) == (40, 1)


def test_some_offsets_and_a_number_without_the_name_of_a_time() -> None:
    texts = [
        an_object({"x": AT if number % 2 else AT.replace("Z", ""), "n": f"{1795264200 + number}"})
        for number in range(9)
    ]
    contract, found = inferred(texts, tolerate=FEW)
    assert field(contract, "x").time == TimeForm(TimeFormat.T_ANY)
    assert field(contract, "n").type is PrimitiveType.LONG  # an ID can be that large
    contract, found = inferred(texts, event_time="n", tolerate=FEW)
    assert (contract.event_time, field(contract, "n").time) == ("n", TimeForm(TimeFormat.EPOCH_S))
    assert "Confirm the format epoch_s" in notes(found, "n")
    texts = [an_object({"ts": "0" if number == 0 else f"{1795264200 + number}"}) for number in range(40)]
    contract, found = inferred(texts, tolerate=FEW)
    assert "numbers like 1795264201 can be seconds" in notes(found, "ts")
    assert "1 of 40 numbers are not such times, like 0." in notes(found, "ts")
    (judged,) = Judge(contract).judge(batch(texts, "array"))
    assert (len(judged.good), len(judged.bad)) == (39, 1)
    assert "--tolerate 0%" in notes(found)
    small = [an_object({"at": AT, "ts": str(number)}) for number in range(9)]
    assert field(inferred(small)[0], "ts").type is PrimitiveType.LONG
    with pytest.raises(UsageError, match="--event-time ts: too few values are a timestamp"):
        inferred(small, event_time="ts")


def test_times_in_arrays_and_maps_have_no_form() -> None:
    contract, found = inferred(several(40, days='["2026-11-21 12:30:00"]', epochs="[1795264200]"))
    assert [field(contract, name).type for name in ("days", "epochs")] == [
        ListType(PrimitiveType.STRING), ListType(PrimitiveType.LONG),
    ]  # fmt: skip
    assert "have no format" in notes(found, "days[]")
