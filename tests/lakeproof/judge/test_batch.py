"""From the bytes of a batch to judged rows: bad input that a stream must handle, and properties of any input."""

import json
import pickle
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.judging import units_of
from tests.selection import examples

from lakeproof.contracts import Contract, Field, PrimitiveType, load_contract
from lakeproof.judge.batch import MAX_UNITS, Judge
from lakeproof.reasons import Reason
from lakeproof.settings import Limits

EVENTS = load_contract(Path(__file__).parents[3] / "contracts", "events")
JUDGE = Judge(EVENTS)

GOOD = (
    b'{"user_id": "u", "event_id": "e", "event_timestamp": "2026-11-21T12:30:00Z", "event_type": "purchase", '
    b'"product_id": "p", "properties": {"amount": 12.50}}'
)


def event(**changes: bytes) -> bytes:
    """Return the good event with the tokens of some fields replaced; an empty token omits the field."""
    tokens = {
        "user_id": b'"u"',
        "event_id": b'"e"',
        "event_timestamp": b'"2026-11-21T12:30:00Z"',
        "event_type": b'"purchase"',
        **changes,
    }
    return b"{" + b",".join(b'"%b":%b' % (name.encode(), token) for name, token in tokens.items() if token) + b"}"


def rows(value: bytes, judge: Judge = JUDGE) -> list[dict[str, Any]]:
    return units_of(judge.judge(value))


def outcomes(value: bytes) -> list[list[str]]:
    """Return the reasons of each unit, empty for a kept record. Check properties of all rows."""
    found = rows(value)
    assert [row["_position"] for row in found] == list(range(len(found)))
    for row in found:
        assert (row["reasons"] is None) == (row["raw"] is None)
        if row["reasons"] is None:
            assert row["event_id"] is not None
        else:
            assert row["reasons"]
            assert all(row[field.name] is None for field in EVENTS)
    return [[f"{reason['code']} {reason['path']}" for reason in row["reasons"] or []] for row in found]


def properties(token: bytes) -> bytes:
    return b"[" + event(properties=b'{"p":%b}' % token) + b"]"


KEPT: list[str] = []
DEEP = b"[" * 2000 + b"]" * 2000
ARRAY = b"[" + b", ".join([GOOD] * 3) + b"]"

BAD_INPUT: dict[str, tuple[bytes, list[list[str]]]] = {
    "truncated JSON": (ARRAY[:-40], [["corrupt_batch $"]]),
    "truncated between records": (ARRAY[: len(GOOD) + 3], [["corrupt_batch $"]]),
    "not JSON": (b"user_id,event_id\nu,e\n", [["corrupt_batch $"]]),
    "empty file": (b"", [["empty_batch $"]]),
    "white space": (b" \n", [["empty_batch $"]]),
    "[]": (b"[]", []),
    "null": (b"null", [["not_a_batch $"]]),
    "a number": (b"12", [["not_a_batch $"]]),
    "nested arrays": (b"[[" + GOOD + b"]," + GOOD + b"]", [["not_an_object $"], KEPT]),
    "a record that is a string": (b'["record",' + GOOD + b"]", [["not_an_object $"], KEPT]),
    "a string that looks like an object": (b"[" + json.dumps(GOOD.decode()).encode() + b"]", [["not_an_object $"]]),
    "one bad record among good ones": (b"[" + GOOD + b',{"user_id":1},' + GOOD + b"]",
        [KEPT, ["wrong_type $.user_id", "missing_field $.event_id", "missing_field $.event_timestamp",
            "missing_field $.event_type"], KEPT]),
    "duplicate keys": (b"[" + GOOD.replace(b"{", b'{"user_id": "v", ', 1) + b"," + GOOD + b"]",
        [["duplicate_key $.user_id"], KEPT]),
    "duplicate keys in a map": (b"[" + event(properties=b'{"a":1,"a":1}') + b"]", [["duplicate_key $.properties.a"]]),
    "NaN": (b"[" + GOOD + b"," + event(properties=b'{"a":NaN}') + b"," + GOOD + b"]",
        [KEPT, ["malformed_record $"], KEPT]),
    "Infinity": (properties(b"-Infinity"), [["malformed_record $"]]),
    "an integer beyond 2^53": (properties(b"9007199254740993"), [KEPT]),
    "an integer beyond 64 bits": (properties(b"18446744073709551617"), [KEPT]),
    "1,100 digits": (properties(b"1" * 1100), [KEPT]),
    "1,100 digits for a string": (b"[" + event(user_id=b"1" * 1100) + b"]", [["wrong_type $.user_id"]]),
    "2,000 deep in one record": (b"[" + GOOD + b"," + event(properties=DEEP) + b"," + GOOD + b"]",
        [KEPT, ["too_deep $"], KEPT]),
    "2,000 deep, a record": (b"[" + GOOD + b"," + DEEP + b"]", [KEPT, ["too_deep $"]]),
    "invalid UTF-8": (b"[" + GOOD + b"," + event(user_id=b'"\xff"') + b"]", [KEPT, ["invalid_utf8 $.user_id"]]),
    "invalid UTF-8 in a map": (properties(b'"\xc3"'), [["invalid_utf8 $.properties.p"]]),
    "half a surrogate pair": (b"[" + event(user_id=rb'"\ud83d"') + b"," + GOOD + b"]",
        [["invalid_utf8 $.user_id"], KEPT]),
    "a BOM": (b"\xef\xbb\xbf" + ARRAY, [KEPT] * 3),
    "UTF-16": (ARRAY.decode().encode("utf-16"), [["corrupt_batch $"]]),
    "NUL, escaped": (b"[" + event(user_id=rb'"a\u0000b"') + b"]", [KEPT]),
    "NUL, bare": (b"[" + event(user_id=b'"a\0b"') + b"," + GOOD + b"]", [["malformed_record $"], KEPT]),
    "5 MB in one record": (b"[" + GOOD + b"," + event(user_id=b'"%b"' % (b"x" * 5_000_000)) + b"]", [KEPT, KEPT]),
    "single quotes": (b"[{'user_id':'u'}," + GOOD + b"]", [["malformed_record $"], KEPT]),
    "trailing comma in a record": (b'[{"user_id":"u",},' + GOOD + b"]", [["malformed_record $"], KEPT]),
    "trailing comma in the array": (b"[" + GOOD + b",]", [["corrupt_batch $"]]),
    "[..][..]": (ARRAY + ARRAY, [["corrupt_batch $"]]),
    "garbage behind the array": (ARRAY + b" garbage", [["corrupt_batch $"]]),
    "case-different field names": (b"[" + GOOD.replace(b"product_id", b"Product_ID") + b"]",
        [["unknown_field $.Product_ID"]]),
    "a timestamp with an offset": (b"[" + event(event_timestamp=b'"2026-11-21T12:30:00+05:30"') + b"]", [KEPT]),
    "a timestamp without a zone": (b"[" + event(event_timestamp=b'"2026-11-21T12:30:00"') + b"]",
        [["wrong_format $.event_timestamp"]]),
    "12:30": (b"[" + event(event_timestamp=b'"12:30"') + b"]", [["wrong_format $.event_timestamp"]]),
    "2024": (b"[" + event(event_timestamp=b'"2024"') + b"]", [["wrong_format $.event_timestamp"]]),
    "a bare number as timestamp": (b"[" + event(event_timestamp=b"1700000000000") + b"]",
        [["wrong_type $.event_timestamp"]]),
    "year 0001": (b"[" + event(event_timestamp=b'"0001-01-01T00:00:00Z"') + b"]", [KEPT]),
    "year 9999": (b"[" + event(event_timestamp=b'"9999-12-31T23:59:59.999999Z"') + b"]", [KEPT]),
    "before year 0001": (b"[" + event(event_timestamp=b'"0001-01-01T00:00:00+01:00"') + b"]",
        [["out_of_range $.event_timestamp"]]),
    "unicode and emoji": (b"[" + event(user_id='"Zoë 😀"'.encode()) + b"]", [KEPT]),
    "required null": (b"[" + event(user_id=b"null") + b"]", [["null_field $.user_id"]]),
    "an unknown value": (b"[" + event(event_type=b'"click"') + b"]", [["not_allowed $.event_type"]]),
    "a single object": (GOOD, [KEPT]),
    "a single object, pretty": (json.dumps(json.loads(GOOD), indent=2).encode(), [KEPT]),
    "newline-delimited": (b"\n".join([GOOD, b"", event(user_id=b""), GOOD[:-3], b"12", GOOD]),
        [KEPT, ["missing_field $.user_id"], ["malformed_record $"], ["not_an_object $"], KEPT]),
}  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input(value: bytes, expected: list[list[str]]) -> None:
    assert outcomes(value) == expected


@pytest.mark.parametrize("name", BAD_INPUT)
def test_dead_letters_are_verbatim(name: str) -> None:
    value = BAD_INPUT[name][0]
    for row in rows(value):
        if row["reasons"] and row["reasons"][0]["code"].endswith("_batch"):
            assert row["raw"] == value
        elif row["reasons"]:
            assert row["raw"] in value


def test_values_are_those_that_landed() -> None:
    scalars = {"n": 12.5, "s": "", "nul": "\0", "yes": True, "none": None, "emoji": "😀"}
    text = json.dumps(scalars)[:-1] + ', "long": 9007199254740993, "money": 12.50, "huge": 1e400, "zero": -0}'
    [row] = rows(b"[" + event(properties=text.encode(), product_id=rb'"\u00e4"') + b"]")
    assert row["properties"] == {
        "n": "12.5", "s": "", "nul": "\0", "yes": "true", "none": None, "emoji": "😀",
        "long": "9007199254740993", "money": "12.50", "huge": "1e400", "zero": "-0",
    }  # fmt: skip
    assert row["product_id"] == "ä"
    assert row["event_timestamp"].isoformat() == "2026-11-21T12:30:00+00:00"


def test_columns() -> None:
    [judged] = JUDGE.judge(ARRAY)
    assert [(field.name, str(field.type)) for field in judged.good.values.schema] == [
        ("user_id", "string"),
        ("event_id", "string"),
        ("event_timestamp", "timestamp[us, tz=UTC]"),
        ("event_type", "string"),
        ("product_id", "string"),
        ("amount", "decimal128(12, 2)"),
        ("properties", "map<string, string>"),
    ]
    assert str(judged.bad.reasons.type) == "list<item: struct<code: string, path: string, detail: string>>"
    assert (judged.good.positions.type, judged.bad.positions.type, judged.bad.raw.type) == (
        pa.int64(),
        pa.int64(),
        pa.binary(),
    )


def test_a_field_may_have_any_name_of_ours_that_begins_with_no_underscore() -> None:
    fields = tuple(Field(name, PrimitiveType.STRING) for name in ("raw", "reasons", "drift", "positions", "values"))
    record = {field.name: f"its {field.name}" for field in fields}
    [judged] = Judge(Contract("s", "1", "", fields, (), "")).judge(json.dumps([record, {**record, "raw": 1}]).encode())
    assert judged.good.values.to_pylist() == [record]
    assert [len(judged.good), len(judged.bad), len(judged)] == [1, 1, 2]
    assert json.loads(judged.bad.raw[0].as_py())["reasons"] == "its reasons"


def test_a_large_batch_comes_in_parts_in_order() -> None:
    count = 2 * MAX_UNITS + 500
    bad = {0, 7, MAX_UNITS - 1, MAX_UNITS, count - 1}
    late = {3, MAX_UNITS + 1}  # valid, but not in the usual form
    times = [b'"2026-11-21T12:30Z"' if i in late else b'"2026-11-21T12:30:00Z"' for i in range(count)]
    records = [
        b"NaN" if i in bad else event(event_id=b'"%d"' % i, event_timestamp=time) for i, time in enumerate(times)
    ]
    batches = list(JUDGE.judge(b"[" + b",".join(records) + b"]"))
    assert [len(batch) for batch in batches] == [MAX_UNITS, MAX_UNITS, 500]
    for batch in batches:
        batch.good.values.validate(full=True)
        for column in (batch.good.positions, batch.bad.positions, batch.bad.reasons, batch.bad.raw):
            column.validate(full=True)
    found = units_of(batches)
    assert [unit["_position"] for unit in found] == list(range(count))
    assert [unit["event_id"] for unit in found] == [None if i in bad else str(i) for i in range(count)]
    assert [unit["raw"] for unit in found] == [b"NaN" if i in bad else None for i in range(count)]
    assert {unit["event_timestamp"] for unit in found} == {None, datetime(2026, 11, 21, 12, 30, tzinfo=UTC)}


def test_large_records_come_in_smaller_parts() -> None:
    records = [event(event_id=b'"%d"' % i, product_id=b'"%b"' % (b"x" * 3_000_000)) for i in range(14)]
    batches = list(JUDGE.judge(b"[" + b",".join(records) + b"]"))
    assert [len(batch) for batch in batches] == [5, 5, 4]


@pytest.mark.parametrize("wrap", [bytes, memoryview, pa.py_buffer])
def test_takes_any_buffer(wrap: Any) -> None:
    assert sum(map(len, JUDGE.judge(wrap(ARRAY)))) == 3


def test_is_pickled_as_its_contract() -> None:
    list(JUDGE.judge(ARRAY))
    text = pickle.dumps(JUDGE)
    assert len(text) < 3_000  # with its patterns, tables and native half, it would be several times as large
    assert rows(ARRAY, pickle.loads(text)) == rows(ARRAY)


def test_refuses_a_batch_that_could_not_be_read() -> None:
    [row] = units_of(JUDGE.refuse(Reason.UNDECODABLE, "not gzip", b"\x1f\x8b"))
    assert row["reasons"] == [{"code": "undecodable", "path": "$", "detail": "not gzip"}]
    assert (row["raw"], row["_position"], row["user_id"]) == (b"\x1f\x8b", 0, None)


def test_field_names_that_python_uses() -> None:
    fields = tuple(Field(name, PrimitiveType.INT) for name in ("from", "f1", "class", "none", "a"))
    [row] = rows(b'{"a":5,"from":1,"f1":2,"class":3,"none":4}', Judge(Contract("s", "1", "", fields, (), "")))
    assert [row[name] for name in ("from", "f1", "class", "none", "a")] == [1, 2, 3, 4, 5]


MUTATIONS = st.tuples(
    st.integers(0, 700), st.integers(0, 3), st.sampled_from([b"", *b'{ } [ ] , " \\ : \xff \0 1 NaN \n'.split(b" ")])
)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.one_of(
        st.binary(max_size=50),
        st.tuples(
            st.sampled_from([ARRAY, b"\n".join([GOOD] * 4), GOOD, properties(b'[1,{"a":"b"}]')]),
            st.lists(MUTATIONS, max_size=4),
        ).map(lambda drawn: mutated(*drawn)),
    )
)
def test_any_bytes_are_judged(value: bytes) -> None:
    at = 0
    for reasons, row in zip(outcomes(value), rows(value), strict=True):
        if not reasons:
            continue
        if reasons[0].endswith("_batch $"):
            assert row["raw"] == value
        else:
            at = value.index(row["raw"], at) + len(row["raw"])


def mutated(text: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for at, removed, inserted in changes:
        text = text[:at] + inserted + text[at + removed :]
    return text


@pytest.mark.all
def test_memory_is_bounded(tmp_path: Path) -> None:
    """A batch of 100 MB with some bad records needs at most three times its size."""
    batch = tmp_path / "batch.json"
    padded = json.dumps({"pad": "x" * 200}).encode()
    with batch.open("wb") as file:
        file.write(b"[" + GOOD)
        for i in range(1, 350_000):
            file.write(b"," + (b"{01}" if i % 50 == 0 else event(event_id=b'"%d"' % i, properties=padded)))
        file.write(b"]")
    script = """
import re, sys
from pathlib import Path
from lakeproof.judge.batch import Judge
from lakeproof.contracts import load_contract
judge = Judge(load_contract(Path("contracts"), "events"))
list(judge.judge(b"{}"))
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
before = peak()
rows = sum(map(len, judge.judge(Path(sys.argv[1]).read_bytes())))
print(rows, peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, batch], check=True, capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    rows, peak = map(int, done.stdout.split())
    assert rows == 350_000
    assert 100_000_000 < batch.stat().st_size < peak < 3 * batch.stat().st_size


LONG = event(user_id=b'"%b"' % (b"u" * 200))
SHORT = event()
SMALL = Judge(EVENTS, Limits(record_bytes=len(SHORT) + 10))


@pytest.mark.parametrize(
    "batch",
    [
        b"[" + b",".join([SHORT, LONG, SHORT]) + b"]",
        b"[" + b" , ".join([SHORT, LONG.replace(b"u" * 200, b"\xff" * 200), SHORT]) + b"]",
        b"[" + b" , ".join([SHORT, b"x" * 200, SHORT]) + b"]",
        b"\n".join([SHORT, LONG, SHORT]),
        b"\n".join([SHORT, LONG[:-1], SHORT]),
    ],
)
def test_a_record_over_the_limit_is_a_dead_letter_by_reference_and_costs_no_neighbour(batch):
    first, large, last = rows(batch, pickle.loads(pickle.dumps(SMALL)))
    assert (first["reasons"], first["event_id"], last["reasons"], last["event_id"]) == (None, "e", None, "e")
    (reason,) = large["reasons"]
    assert (large["raw"], reason["code"], reason["path"]) == (None, "record_too_large", "$")
    assert f"LAKE_MAX_RECORD_BYTES is {len(SHORT) + 10}" in reason["detail"]
    assert "_source" in reason["detail"]


def test_the_limit_of_a_record_is_met_to_the_byte():
    for size, codes in ((len(SHORT), []), (len(SHORT) - 1, ["record_too_large"])):
        judge = Judge(EVENTS, Limits(record_bytes=size))
        for batch in (SHORT, b"[" + SHORT + b"]", b" [ " + SHORT + b" ]", SHORT + b"\n" + b"{}"):
            found = rows(batch, judge)[0]
            assert [reason["code"] for reason in found["reasons"] or []] == codes


@pytest.mark.parametrize(
    ("batch", "code"),
    [(bytes(300), "corrupt_batch"), (b'"%b"' % (b"a" * 300), "not_a_batch"), (b"[" + LONG, "corrupt_batch")],
)
def test_a_batch_that_cannot_be_split_is_kept_only_up_to_the_limit_of_a_record(batch, code):
    (row,) = rows(batch, SMALL)
    assert [reason["code"] for reason in row["reasons"]] == [code, "batch_too_large"]
    assert row["raw"] is None
    assert f"{len(batch)} bytes" in row["reasons"][1]["detail"]
    (row,) = rows(batch, Judge(EVENTS, Limits(record_bytes=len(batch))))
    assert ([reason["code"] for reason in row["reasons"]], row["raw"]) == ([code], batch)
    (row,) = units_of(SMALL.refuse("undecodable", "not gzip", batch))
    assert [reason["code"] for reason in row["reasons"]] == ["undecodable", "batch_too_large"]


@given(
    st.lists(st.sampled_from([SHORT, LONG, b"NaN", b"{}", b'"' + LONG]), max_size=8),
    st.sampled_from(["array", "lines"]),
)
@settings(max_examples=examples(100), deadline=None)
def test_limits_change_nothing_else(units, wrapping):
    batch = b"[" + b",".join(units) + b"]" if wrapping == "array" else b"\n".join(units)
    for small, large in zip(rows(batch, SMALL), rows(batch), strict=True):
        if small["reasons"] and small["reasons"][-1]["code"].endswith("_too_large"):
            assert (small["raw"], small["_position"]) == (None, large["_position"])
        else:
            assert small == large
