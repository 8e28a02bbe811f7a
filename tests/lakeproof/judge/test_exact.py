"""All reasons of a record, with their order, paths and details."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeproof.contracts import (
    Bound,
    Constraints,
    Contract,
    DecimalType,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
)
from lakeproof.contracts.tokens import MAX_DEPTH
from lakeproof.judge.exact import MAX_FAULTS, MAX_VALUES, ExactJudge
from lakeproof.judge.judged import Fault

INT, STRING, SCALAR = PrimitiveType.INT, PrimitiveType.STRING, PrimitiveType.SCALAR
CONTRACT = Contract(
    "orders",
    "1",
    "",
    (
        Field("id", STRING, required=True),
        Field("kind", STRING, allowed=("buy", "sell")),
        Field("level", INT, allowed=("1", "2")),
        Field("items", ListType(ObjectType((Field("x", INT, required=True), Field("y", STRING))))),
        Field("tags", MapType(SCALAR)),
        Field("buyer", ObjectType((Field("name", STRING, required=True), Field("at", PrimitiveType.TIMESTAMP)))),
    ),
    (),
    "",
)


def judge(unit: bytes) -> dict[str, Any] | list[Fault]:
    return ExactJudge(CONTRACT).judge(unit)


def reasons(unit: bytes) -> list[str]:
    verdict = judge(unit)
    assert isinstance(verdict, list), verdict
    return [f"{fault.code} {fault.path}" for fault in verdict]


def test_values() -> None:
    assert judge(
        b' {"id":"\\u0000","kind":null,"items":[{"x":1},null],"tags":{"a b":1.50,"":null},'
        b'"buyer":{"name":"","at":"1970-01-01T00:00:01Z"}} '
    ) == {
        "id": "\0",
        "kind": None,
        "level": None,
        "items": [{"x": 1, "y": None}, None],
        "tags": [("a b", "1.50"), ("", None)],
        "buyer": {"name": "", "at": 1_000_000},
    }


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (b"[]", ["not_an_object $"]),
        (b'"{}"', ["not_an_object $"]),
        (b"1e400", ["not_an_object $"]),
        (b"null", ["not_an_object $"]),
        (b"{}", ["missing_field $.id"]),
        (b'{"id":null}', ["null_field $.id"]),
        (b'{"ID":"a"}', ["missing_field $.id", "unknown_field $.ID"]),
        (b'{"id":"a","kind":"give"}', ["not_allowed $.kind"]),
        (b'{"id":"a","kind":1}', ["wrong_type $.kind"]),
        (b'{"id":"a","level":1}', []),
        (b'{"id":"a","level":3}', ["not_allowed $.level"]),
        (b'{"id":"a","level":3000000000}', ["out_of_range $.level"]),
        (b'{"id":"a","buyer":{}}', ["missing_field $.buyer.name"]),
        (b'{"id":"a","buyer":{"name":null,"at":"12:30"}}', ["null_field $.buyer.name", "wrong_format $.buyer.at"]),
        (b'{"id":"a","buyer":[]}', ["wrong_type $.buyer"]),
        (b'{"id":"a","items":[{"x":1},{"y":"1"},{"x":"1"}]}',
            ["missing_field $.items[1].x", "wrong_type $.items[2].x"]),
        (b'{"id":"a","items":[{"x":1,"z":{"x":1}}]}', ["unknown_field $.items[0].z"]),
        (b'{"id":"a","tags":{"odd key":{},"it\'s":[],"b\\\\":{}}}',
            ["wrong_type $.tags['odd key']", r"wrong_type $.tags['it\'s']", r"wrong_type $.tags['b\\']"]),
        (b'{"id":"a","id":"b"}', ["duplicate_key $.id"]),
        (b'{"id":"a","tags":{"t":1,"\\u0074":1}}', ["duplicate_key $.tags.t"]),
        (b'{"id":"a","zz":{"b":[{"c":1,"c":2}]}}', ["duplicate_key $.zz.b[0].c", "unknown_field $.zz"]),
        (b'{"id":"a","tags":{"t":{"c":1,"c":2}}}', ["duplicate_key $.tags.t.c", "wrong_type $.tags.t"]),
        (b'{"id":1,"id":"b"}', ["duplicate_key $.id"]),  # the last one is judged
        (b'{"id":"\\ud800"}', ["invalid_utf8 $.id"]),
        (b'{"id":"\\uDC00\\uD83D"}', ["invalid_utf8 $.id"]),
        (b'{"id":"\\ud83d\\ude00"}', []),
        (b'{"id":"\xff","kind":1}', ["invalid_utf8 $.id", "wrong_type $.kind"]),
        (b'{"id":"a","tags":{"\xff":"\xed\xa0\x80"}}', [r"invalid_utf8 $.tags['\udcff']"] * 2),  # key and value
        (b'{"id":"a","\xffz":1}', [r"invalid_utf8 $['\udcffz']", r"unknown_field $['\udcffz']"]),
        (b'{"id":"a",\xff}', ["malformed_record $", "invalid_utf8 $"]),
        (b'{"z":1,"kind":[],"level":1.0,"a":2}',
            ["missing_field $.id", "wrong_type $.kind", "wrong_type $.level",
             "unknown_field $.z", "unknown_field $.a"]),
        (b'{"id":NaN}', ["malformed_record $"]),
        (b'{"id":-Infinity}', ["malformed_record $"]),
        (b'{"id":01}', ["malformed_record $"]),
        (b'{"id":"a",}', ["malformed_record $"]),
        (b"{'id':'a'}", ["malformed_record $"]),
        (b'{"id":"a\nb"}', ["malformed_record $"]),
        (b'{"id":"a\x00"}', ["malformed_record $"]),
        (b'{"id":"\\x"}', ["malformed_record $"]),
        (b'{"id":"a"}{}', ["malformed_record $"]),
        (b'\x0b{"id":"a"}', ["malformed_record $"]),
        (b'\xef\xbb\xbf{"id":"a"}', ["malformed_record $"]),
        (b"", ["malformed_record $"]),
    ],
)  # fmt: skip
def test_reasons(unit: bytes, expected: list[str]) -> None:
    if expected:
        assert reasons(unit) == expected
    else:
        assert isinstance(judge(unit), dict)


@pytest.mark.parametrize("item", [b"1", b"[]", b"{}"])
def test_the_number_of_values_is_limited(item: bytes) -> None:
    """A value takes two bytes of input and 130 of memory."""
    many = b",".join([item] * MAX_VALUES)
    assert reasons(b'{"id":"a","z":[' + many + b"]}") == ["too_many_values $"]
    assert reasons(b'{"id":"a","z":[' + many) == ["too_many_values $"]


def test_commas_in_text_are_no_values() -> None:
    text = b'\\",[{' * MAX_VALUES
    verdict = judge(b'{"id":"' + text + b'"}')
    assert isinstance(verdict, dict)
    assert verdict["id"] == '",[{' * MAX_VALUES


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_is_limited_exactly(opening: bytes, closing: bytes) -> None:
    def nested(levels: int) -> bytes:
        inner = levels - 1
        return b'{"id":"a","z":' + opening * inner + b"1" + closing * inner + b"}"

    assert reasons(nested(MAX_DEPTH)) == ["unknown_field $.z"]
    assert reasons(nested(MAX_DEPTH + 1)) == ["too_deep $"]
    assert reasons(nested(100_000)) == ["too_deep $"]
    assert reasons(b'{"id":"a","z":' + opening * 100_000) == ["too_deep $"]
    wide = b"[" + b",".join([opening + b"1" + closing] * MAX_DEPTH * 2) + b"]"
    assert reasons(b'{"id":"a","z":' + wide + b"}") == ["unknown_field $.z"]


@pytest.mark.parametrize(
    ("unit", "detail"),
    [
        (b'{"id":12.50}', "expected a string, got 12.50"),
        (b'{"id":"a","level":"1"}', 'expected an integer without a decimal point or exponent, got "1"'),
        (b'{"id":"a","kind":"give"}', '"give" is not an allowed value'),
        (b'{"id":"a","kind":true}', "expected a string, got true"),
        (b'{"id":"a" "b"}', "Expecting ',' delimiter at byte 10"),
        ('{"id":"ä" "b"}'.encode(), "Expecting ',' delimiter at byte 11"),
        (b'{"id":"a","z":NaN}', "NaN is not valid JSON"),
        (b'{"id":"a","x":null}', "not in the contract (value: null)"),
        (b'{"id":"\xff"}', '"\\udcff" is not valid Unicode'),
        (b'{"id":"a","kind":"x\\ny"}', '"x\\u000ay" is not an allowed value'),
        (b'{"id":"a","kind":"' + b"x" * 500 + b'"}', f'"{"x" * 80}…" is not an allowed value'),
        (b'{"id":"a","level":' + b"9" * 1100 + b"}", f"expected a 32-bit integer, got {'9' * 80}…"),
    ],
)
def test_details(unit: bytes, detail: str) -> None:
    verdict = judge(unit)
    assert isinstance(verdict, list)
    assert [fault.detail for fault in verdict] == [detail]


CONSTRAINED = Contract(
    "orders",
    "1",
    "",
    (
        Field("code", STRING, constraints=Constraints(min_length=2, max_length=4, pattern="^[A-Z]+$")),
        Field("level", INT, constraints=Constraints(Bound(0), Bound(9))),
        Field(
            "price", DecimalType(10, 2), constraints=Constraints(Bound(Decimal("0.5"), True), Bound(Decimal(99), True))
        ),
        Field("at", PrimitiveType.TIMESTAMP, constraints=Constraints(Bound(datetime(2000, 1, 1, tzinfo=UTC)))),
        Field("in", ObjectType((Field("any", SCALAR, constraints=Constraints(max_length=3)),))),
    ),
    (),
    "",
)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (b'{"code":"A"}', ["wrong_length $.code: expected a length of at least 2, got 1: \"A\""]),
        (b'{"code":"a"}', ["wrong_length $.code: expected a length of at least 2, got 1: \"a\"",
            "pattern_mismatch $.code: expected text matching ^[A-Z]+$, got \"a\""]),
        (b'{"code":"ABCDE"}', ["wrong_length $.code: expected a length of at most 4, got 5: \"ABCDE\""]),
        (b'{"code":"AB\\n"}',
            ["pattern_mismatch $.code: expected text matching ^[A-Z]+$, got \"AB\\u000a\""]),
        ('{"code":"😀"}'.encode(), ["wrong_length $.code: expected a length of at least 2, got 1: \"😀\"",
            "pattern_mismatch $.code: expected text matching ^[A-Z]+$, got \"😀\""]),
        (b'{"code":"\\ud800AB"}', ["invalid_utf8 $.code: \"\\ud800AB\" is not valid Unicode"]),
        (b'{"level":-1}', ["out_of_range $.level: expected at least 0, got -1"]),
        (b'{"level":10}', ["out_of_range $.level: expected at most 9, got 10"]),
        (b'{"level":3000000000}', ["out_of_range $.level: expected a 32-bit integer, got 3000000000"]),
        (b'{"level":"a"}',
            ["wrong_type $.level: expected an integer without a decimal point or exponent, got \"a\""]),
        (b'{"price":0.50}', ["out_of_range $.price: expected more than 0.5, got 0.50"]),
        (b'{"price":99}', ["out_of_range $.price: expected less than 99, got 99"]),
        (b'{"at":"1999-12-31T23:00:00Z"}',
            ["out_of_range $.at: expected at least 2000-01-01T00:00:00Z, got \"1999-12-31T23:00:00Z\""]),
        (b'{"at":"1999-12-31T23:00:00-01:00","price":0.51,"level":0}', []),
        (b'{"in":{"any":1.50}}', ["wrong_length $.in.any: expected a length of at most 3, got 4: 1.50"]),
    ],
)  # fmt: skip
def test_constraints(unit: bytes, expected: list[str]) -> None:
    verdict = ExactJudge(CONSTRAINED).judge(unit)
    faults = verdict if isinstance(verdict, list) else []
    assert [f"{fault.code} {fault.path}: {fault.detail}" for fault in faults] == expected


def test_many_reasons_are_counted_and_not_all_listed() -> None:
    record = {"id": 1} | {f"u{i}": i for i in range(1_000)} | {"kind": 2}
    verdict = judge(json.dumps(record).encode())
    assert isinstance(verdict, list)
    assert [str(fault.code) for fault in verdict] == ["wrong_type"] * 2 + ["unknown_field"] * MAX_FAULTS
    assert verdict[-1].detail.endswith(f"(and {1_000 - MAX_FAULTS} more unknown_field)")
    assert "more" not in verdict[0].detail


@given(
    st.one_of(
        st.binary(max_size=80), st.text(max_size=40).map(lambda text: json.dumps({"id": text, text: [text]}).encode())
    )
)
def test_anything_is_judged_and_said_in_unicode(unit: bytes) -> None:
    verdict = judge(unit)
    if isinstance(verdict, list):
        assert verdict
        for fault in verdict:
            assert f"{fault.path}{fault.detail}".encode()
