"""Hashes of rows: Python, the native judge and SQL agree on any row."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from structlog.testing import capture_logs

from consumer import native_hashes as native_module
from consumer import row_hashes as row_hashes_module
from consumer.layers.silver import content as content_module
from consumer.layers.silver.content import content_hashes
from consumer.native_hashes import file_hashes
from consumer.row_hashes import row_hashes, signed, sum_of
from lakeproof.contracts import (
    Contract,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
)
from lakeproof.contracts.model import Type
from lakeproof.install.judges import JudgeChoice
from lakeproof.landing.zone import content_hash
from lakeproof.tables.schemas import bronze_schema, dead_letter_schema
from reader.verify.tables.row_hash import row_hash_sql, sum_sql

IS_NATIVE = hasattr(import_module("native_judge"), "row_hashes") if find_spec("native_judge") else False

Rows = list[dict[str, Any]]
Values = st.SearchStrategy[Any]

YEAR_1, YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
SCALARS: dict[PrimitiveType, Values] = {
    PrimitiveType.STRING: st.text("a1:-\0ä😀\n", max_size=4),
    PrimitiveType.SCALAR: st.text(max_size=3),
    PrimitiveType.BOOLEAN: st.booleans(),
    PrimitiveType.INT: st.integers(-(1 << 31), (1 << 31) - 1),
    PrimitiveType.LONG: st.integers(-(1 << 63), (1 << 63) - 1),
    PrimitiveType.FLOAT: st.floats(width=32),
    PrimitiveType.DOUBLE: st.floats(),
    PrimitiveType.TIMESTAMP: st.integers(YEAR_1, YEAR_10000 - 1),
    PrimitiveType.DATE: st.dates(),
}
NAMES = st.text("abZ_", min_size=1, max_size=3) | st.sampled_from(["entry_0", "entry_1", "item_0", "text_0", "text_1"])


@st.composite
def decimals(draw: st.DrawFn) -> DecimalType:
    precision = draw(st.integers(1, 38))
    return DecimalType(precision, draw(st.integers(0, precision)))


@st.composite
def objects(draw: st.DrawFn, kinds: st.SearchStrategy[Type]) -> ObjectType:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower))
    return ObjectType(tuple(Field(name, draw(kinds)) for name in names))


KINDS: st.SearchStrategy[Type] = st.recursive(
    st.sampled_from(list(PrimitiveType)) | decimals(),
    lambda inner: st.builds(ListType, inner) | st.builds(MapType, inner) | objects(inner),
    max_leaves=5,
)


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    names = draw(st.lists(NAMES, min_size=2, max_size=8, unique_by=str.lower))
    kinds = [draw(KINDS) for _ in names]
    fields = [Field(name, kind) for name, kind in zip(names, kinds, strict=True)]
    if draw(st.booleans()):
        fields[0] = Field(names[0], kinds[0], former_names=(names[1] + "_first", "between"))
    return Contract("t", "1", "", tuple(fields), (names[0],), names[0], drift=DriftPolicy.RESCUE)


def values_of(kind: Type) -> Values:
    match kind:
        case DecimalType(precision, scale):
            most = 10**precision - 1
            whole = st.integers(-most, most) | st.integers(-min(most, 1000), min(most, 1000))
            values: Values = whole.map(lambda number: Decimal(f"{number}E-{scale}"))
        case ListType(item):
            values = st.lists(values_of(item), max_size=3)
        case MapType(value):
            keys = st.text("ab:1", max_size=3)
            values = st.dictionaries(keys, values_of(value), max_size=3).map(lambda found: list(found.items()))
        case ObjectType(fields):
            values = st.fixed_dictionaries({field.name: values_of(field.type) for field in fields})
        case PrimitiveType():
            values = SCALARS[kind]
    return st.none() | values


@st.composite
def tables(draw: st.DrawFn) -> tuple[Contract, Rows]:
    contract = draw(contracts())
    row = {field.name: values_of(field.type) for field in contract}
    row |= {
        "_rescued": values_of(MapType(PrimitiveType.STRING)),
        "_source": st.sampled_from(["a.json", "topic/0/00000000000000000001"]),
        "_position": st.integers(0, 10),
        "_landed_at": values_of(PrimitiveType.TIMESTAMP),
    }
    return contract, draw(st.lists(st.fixed_dictionaries(row), min_size=1, max_size=5))


def batch(rows: Rows, schema: Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema_to_pyarrow(schema, include_field_ids=False))


def in_sql(rows: pa.RecordBatch, schema: Schema, fields: tuple[Field, ...]) -> tuple[list[int], int]:
    """Return the hashes of rows, and of the set of rows, computed by DuckDB."""
    with duckdb.connect() as connection:
        # Copy the rows: DuckDB reads the nulls of objects within objects from the wrong rows of a slice.
        connection.register("rows", pa.Table.from_batches([rows]).take(pa.array(range(rows.num_rows), pa.int64())))
        sql = row_hash_sql(schema, fields, "r")
        found = connection.execute(f"SELECT {sql} FROM rows AS r").fetchall()
        whole = connection.execute(f"SELECT {sum_sql(sql)} FROM rows AS r").fetchall()
    return [value for (value,) in found], whole[0][0]


def in_python(rows: pa.RecordBatch, contract: Contract | tuple[Field, ...] = ()) -> tuple[list[int], int]:
    """Return the same hashes, computed by the reference in Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_hashes_module, "native_hashes", lambda *_: None)
        hashes = row_hashes(rows, contract)
    return hashes.tolist(), sum_of(hashes)


@given(tables(), st.integers(0, 3))
def test_python_sql_and_the_native_judge_agree(table: tuple[Contract, Rows], begin: int) -> None:
    contract, values = table
    schema = bronze_schema(contract)
    rows = batch(values, schema).slice(begin)  # with an offset, as batches of a file
    found = in_python(rows, contract)
    assert found == in_sql(rows, schema, contract.fields)
    if IS_NATIVE:
        given_part = row_hashes(rows, contract)
        assert found == (given_part.tolist(), sum_of(given_part))


@given(tables(), st.integers(0, 3))
def test_content_hashes_are_the_same(table: tuple[Contract, Rows], begin: int) -> None:
    contract, values = table
    rows = batch(values, bronze_schema(contract)).slice(begin)
    found = content_hashes(rows, contract)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_module, "native_hashes", lambda *_: None)
        assert content_hashes(rows, contract).equals(found)


def test_dead_letters_have_bytes() -> None:
    letters: Rows = [
        {"raw": raw, "_source": "a", "_position": 0, "reasons": reasons}
        for raw in (None, b"", b"\xff\x00{")
        for reasons in (None, [], [{"code": "not_json", "path": "$", "detail": None}, None])
    ]
    schema = dead_letter_schema()
    rows = batch(letters, schema)
    hashes = row_hashes(rows, ())
    assert (hashes.tolist(), sum_of(hashes)) == in_sql(rows, schema, ())
    assert len(set(hashes.tolist())) == len(letters)


STRING = PrimitiveType.STRING
ONE = Contract("t", "1", "", (Field("id", STRING), Field("n", PrimitiveType.LONG)), ("id",), "id")
ROW: dict[str, Any] = {"id": "x", "n": 1, "_source": "a", "_position": 0, "_micro_batch_id": 3}


def one(row: dict[str, Any], contract: Contract = ONE) -> int:
    found: int = row_hashes(batch([row], bronze_schema(contract)), contract).tolist()[0]
    return found


def test_the_hash_is_the_one_that_is_documented() -> None:
    """If the hash changes, LEDGER_HASH_KIND must change, too: recorded ledger hashes stay as they are."""
    import hashlib

    text = b"15:_micro_batch_id1:3" + b"9:_position1:0" + b"7:_source1:a" + b"2:id1:x" + b"1:n1:1"
    assert one(ROW) == int.from_bytes(hashlib.md5(text, usedforsecurity=False).digest()[:8], "little")


@pytest.mark.parametrize(
    "other", [{"id": "y"}, {"n": 2}, {"n": None}, {"_source": "b"}, {"_position": 1}, {"_micro_batch_id": 4}], ids=str
)
def test_every_column_counts(other: dict[str, Any]) -> None:
    assert one(ROW) != one(ROW | other)


def test_new_renamed_and_widened_columns_change_nothing() -> None:
    fields = (
        Field("more", STRING),
        Field("m", PrimitiveType.LONG, former_names=("n",)),
        Field("price", DecimalType(20, 2)),
        Field("id", STRING),
    )
    before = (Field("id", STRING), Field("n", PrimitiveType.INT), Field("price", DecimalType(9, 2)))
    old, new = (Contract("t", "1", "", of, ("id",), "id", drift=DriftPolicy.RESCUE) for of in (before, fields))
    row = {"id": "x", "n": 1, "price": Decimal("1.50")}
    assert one(row, old) == one({"id": "x", "m": 1, "price": Decimal("1.50"), "more": None}, new)


def test_an_old_data_file_has_the_hashes_of_the_table() -> None:
    """The old file's columns have the names from the time of writing."""
    new = Contract("t", "2", "", (Field("id", STRING), Field("m", STRING, former_names=("n",))), ("id",), "id")
    old = Contract("t", "1", "", (Field("id", STRING), Field("n", STRING)), ("id",), "id")
    rows = batch([{"id": "x", "n": "y"}], bronze_schema(old))
    found, _ = in_sql(rows, bronze_schema(old), new.fields)
    assert found == row_hashes(rows, old).tolist()


def test_sums() -> None:
    """The sum of a set ignores the order, and counts a doubled row twice."""
    rows = [ROW | {"_position": position} for position in range(4)]
    of: Callable[[Rows], int] = lambda part: sum_of(row_hashes(batch(part, bronze_schema(ONE)), ONE))  # noqa: E731
    assert of(rows) == of(rows[::-1]) == signed(of(rows[:1]) + of(rows[1:]))
    assert of(rows) != of([*rows, rows[0]])
    assert of([]) == 0
    assert in_sql(batch([], bronze_schema(ONE)), bronze_schema(ONE), ONE.fields) == ([], 0)


@pytest.mark.parametrize("scale", [0, 2, 7, 10, 38])
def test_decimals_are_written_as_arrow_does(scale: int) -> None:
    contract = Contract("t", "1", "", (Field("d", DecimalType(38, scale)),), ("d",), "d")
    numbers = [0, 1, -1, 10, 100, 12345678, -(10**31), 10**32 - 1, 10**37, 10**38 - 1]
    schema = bronze_schema(contract)
    rows = batch([{"d": Decimal(f"{number}E-{scale}")} for number in numbers], schema)
    assert row_hashes(rows, contract).tolist() == in_sql(rows, schema, contract.fields)[0]


def test_days_before_1970() -> None:
    contract = Contract("t", "1", "", (Field("on", PrimitiveType.DATE),), ("on",), "on")
    rows = batch([{"on": date(1, 1, 1)}, {"on": date(1969, 12, 31)}], bronze_schema(contract))
    assert row_hashes(rows, contract).tolist() == in_sql(rows, bronze_schema(contract), contract.fields)[0]


class Broken:
    """Module in place of the native judge that fails, or has an older version."""

    def __init__(self, *, panics: bool) -> None:
        if panics:
            self.row_hashes = self.file_hashes = self._panic

    def _panic(self, _: object) -> bytes:
        raise RuntimeError("the native hashes panicked")


@pytest.mark.parametrize("panics", [True, False])
def test_python_hashes_where_the_native_judge_does_not(monkeypatch: pytest.MonkeyPatch, panics: bool) -> None:
    expected = one(ROW)
    monkeypatch.setattr(native_module, "judge_choice", lambda: JudgeChoice("native", "0"))
    monkeypatch.setattr(native_module, "import_module", lambda _: Broken(panics=panics))
    native_module.native_function.cache_clear()
    try:
        with capture_logs() as logs:
            assert one(ROW) == expected
            assert file_hashes([b"a", b""]) == [content_hash(b"a"), content_hash(b"")]
    finally:
        native_module.native_function.cache_clear()
    assert [each["event"] for each in logs] == ["native_hashes_replaced"] * 2 * panics


@given(st.lists(st.binary(max_size=300), max_size=70))
def test_files_are_hashed_as_one_by_one(contents: list[bytes]) -> None:
    assert file_hashes(contents) == [content_hash(content) for content in contents]


@pytest.mark.skipif(not IS_NATIVE, reason="the native judge is not installed")
@pytest.mark.parametrize(
    "part",
    [
        ("text", 1, None, [b""], [], [], 0),
        ("object", 1, None, [], [("int", 1, None, [b"\0"], [], [], 0)], [b"1:a"], 0),
        ("object", 1, None, [], [("other", 1, None, [], [], [], 0)], [b"1:a"], 0),
        ("object", 1, None, [], [("text", 1, None, [bytes(8)], [], [], 0)], [b"1:a"], 0),
        ("object", 2, None, [], [("list", 1, None, [bytes(16)], [], [], 0)], [b"1:a"], 0),
    ],
)
def test_the_native_judge_refuses_what_it_cannot_read(part: Any) -> None:
    """The judge neither ends the process nor reads beyond a buffer."""
    with pytest.raises(RuntimeError):
        import_module("native_judge").row_hashes(part)
