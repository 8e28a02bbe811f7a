"""The value of a JSON token in a column: verify agrees with the consumer, and disagrees with any other value."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
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
    Type,
)
from lakeproof.judge.batch import Judge
from lakeproof.tables.names import RESCUED
from reader.verify.landed.values import Sample, _time

FIELDS: dict[str, Type] = {
    **{kind.value: kind for kind in PrimitiveType},
    "epoch_s": PrimitiveType.TIMESTAMP,
    "decimal": DecimalType(10, 2),
    "map": MapType(PrimitiveType.TIMESTAMP),
    "list": ListType(PrimitiveType.FLOAT),
    "object": ObjectType((Field("a", PrimitiveType.DATE), Field("b", ListType(PrimitiveType.SCALAR)))),
}
TIMES = {"epoch_s": TimeForm(TimeFormat.EPOCH_S)}
CONTRACT = Contract(
    "s",
    "1",
    "",
    tuple(Field(f"f_{name}", kind, time=TIMES.get(name, ISO_8601)) for name, kind in FIELDS.items()),
    (),
    "",
)
JUDGE = Judge(CONTRACT)
TOKENS = {
    "string": ['"x"', '""', '"1"', r'"\u00e9\u0000\ud83c\udf89"'],
    "boolean": ["true", "false"],
    "int": ["0", "-0", "2147483647"],
    "long": ["9007199254740993", "-9223372036854775808"],
    "float": ["12.345", "1e-46", "16777217", "1.00000017881393432617187499", "3.4028235e38", "1e-999999999"],
    "double": ["0.1", "1e308", "9007199254740993"],
    "timestamp": [
        '"2026-11-21T12:30Z"',
        '"2026-11-21T12:30:00-0530"',
        '"2026-11-21T12:30:00+14"',
        '"2026-11-21T12:30:00.123456000Z"',
        '"0001-01-01T00:00:00Z"',
        '"0000-12-31T23:00:00-01:00"',
        '"9999-12-31T23:59:59.999999Z"',
    ],
    "date": ['"2026-11-21"', '"0001-01-01"', '"9999-12-31"'],
    "scalar": ["12.50", "1e400", "true", '"12.50"', "-0", "123456789012345678901234567890"],
    "decimal": [
        "1",
        "1.50",
        "1e2",
        "-99999999.99",
        "0e999999999",
        "-0.0e10000000000000000000",
        "0e-10000000000000000000",
    ],
    "epoch_s": ["1795264200.000001", "0e1000000000000000000"],
    "map": ["{}", '{"a":"2026-11-21T12:30Z","":null}'],
    "list": ["[]", "[1,null,0.1]"],
    "object": ["{}", '{"a":"2026-11-21","b":[1,"1",null,true,1.0]}'],
}


def differences(record: bytes, row: pa.Table) -> list[str]:
    places = {"_source": pa.array(["a"]), "_position": pa.array([0]), "_contract_version": pa.array(["1"])}
    for name, column in places.items():
        row = row.append_column(name, column)
    return texts(Sample({"1": CONTRACT}, row), {0: record})


def texts(sample: Sample, units: dict[int, bytes]) -> list[str]:
    found = sample.compare("a", units)
    return found.wrong + found.missing


def judged(record: bytes) -> pa.Table:
    """Return the consumer's row for a record, without its position."""
    [judged] = JUDGE.judge(record)
    assert len(judged.good) == 1, judged.bad.reasons
    return pa.Table.from_batches([judged.good.values])


CELLS = [(name, token) for name, tokens in TOKENS.items() for token in tokens]


def test_all_types_are_tried() -> None:
    assert TOKENS.keys() == FIELDS.keys()


@pytest.mark.parametrize(("name", "token"), CELLS)
def test_the_consumers_value_is_right_and_any_other_is_not(name: str, token: str) -> None:
    record = f'{{"f_{name}": {token}}}'.encode()
    assert differences(record, judged(record)) == []
    for other_name, other in [*CELLS, (name, "null")]:
        if other_name != name:
            continue
        row = judged(f'{{"f_{name}": {other}}}'.encode())
        same = row == judged(record)
        assert (differences(record, row) == []) == same, other


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**31), 2**31 - 1), st.decimals(-99, 99, places=2)
)
def test_numbers(double: float, integer: int, decimal: Decimal) -> None:
    fields: dict[str, Any] = {"f_double": double, "f_int": integer, "f_long": integer}
    record = json.dumps(fields).encode().replace(b"}", f', "f_decimal": {decimal}, "f_scalar": {double}}}'.encode())
    assert differences(record, judged(record)) == []


@pytest.mark.parametrize("token", ["1e-999999999", "1e999999999", "-1e999999999"])
def test_a_number_of_any_size_is_compared_at_once(token: str) -> None:
    for name, other in (("float", "1"), ("decimal", "1"), ("decimal", "0")):
        assert differences(f'{{"f_{name}": {token}}}'.encode(), judged(f'{{"f_{name}": {other}}}'.encode()))


def test_a_rescued_integer_may_be_longer_than_python_reads() -> None:
    contract = replace(CONTRACT, drift=DriftPolicy.RESCUE)
    record = b'{"more": ' + b"1" * 5_000 + b"}"
    [found] = Judge(contract).judge(record)
    row = pa.Table.from_batches([found.good.values]).append_column(RESCUED, found.good.rescued)
    assert differences(record, row) == []


@pytest.mark.parametrize("unit", [b"[1]", b"{'a':1}", b"\xff", b"[" * 100_000])
def test_a_unit_that_is_no_record_should_not_be_in_bronze(unit: bytes) -> None:
    assert differences(unit, judged(b"{}")) == ["unit 0 is in bronze, but it is not a JSON object"]


@pytest.mark.parametrize("token", ['""', '"n/a"', '"12:30"'])
def test_a_text_that_is_no_time_should_not_be_one_in_bronze(token: str) -> None:
    row = judged(b'{"f_timestamp": "2026-11-21T12:30Z"}')
    assert len(differences(f'{{"f_timestamp": {token}}}'.encode(), row)) == 1


@pytest.mark.parametrize("form", [form for form in TimeFormat if form.startswith("yyyy-MM-dd'T'") and "XXX" in form])
def test_a_time_in_the_year_before_the_first_may_be_in_that_in_utc(form: TimeFormat) -> None:
    assert _time("0000-12-31T23:00:00-01:00", TimeForm(form)) == _time("0001-01-01T00:00:00Z", TimeForm(form))


def test_a_difference_shows_both_values() -> None:
    (text,) = differences(b'{"f_string": "landed"}', judged(b'{"f_string": "kept"}'))
    assert text == 'unit 0: f_string is kept in bronze, but "landed" landed'


def test_columns_that_were_renamed_or_dropped_since_then() -> None:
    """A row is compared by its own contract, in the columns of the newest; what was dropped is unknown to that."""
    text = PrimitiveType.STRING
    old = Contract("s", "1", "", (Field("a", text), Field("b", text)), (), "")
    new = Contract("s", "2", "", (Field("z", text, former_names=("a",)), Field("b", text, dropped=True)), (), "")
    rows = pa.table(
        {
            "z": ["x", "x"],
            "b": ["y", None],
            "_rescued": pa.array([None, [("$.b", '"y"')]], pa.map_(pa.string(), pa.string())),
            "_source": ["a", "a"],
            "_position": [0, 1],
            "_contract_version": ["1", "2"],
        }
    )
    sample = Sample({"1": old, "2": new}, rows)
    landed = {0: b'{"a": "x", "b": "y"}', 1: b'{"z": "x", "b": "y"}'}
    assert texts(sample, landed) == []
    other = {0: b'{"a": "-", "b": "y"}', 1: b'{"z": "x", "b": "-"}'}
    assert len(texts(sample, other)) == 2
    [missing] = texts(Sample({"1": old, "2": new}, rows.drop_columns("_rescued")), landed)
    assert missing == 'unit 1: b is null in bronze, but "y" landed'
