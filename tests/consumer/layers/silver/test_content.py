"""Texts and hashes of content are equal for equal content, and for no other."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.layers.silver.content import content_hashes, keys
from lakeproof.contracts import (
    Contract,
    DecimalType,
    Derived,
    DerivedFrom,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
)
from lakeproof.contracts.model import Type

STRING, DOUBLE = PrimitiveType.STRING, PrimitiveType.DOUBLE
TYPES: dict[str, tuple[Type, pa.DataType]] = {
    "a": (STRING, pa.string()),
    "b": (STRING, pa.large_string()),
    "at": (PrimitiveType.TIMESTAMP, pa.timestamp("us", "UTC")),
    "on": (PrimitiveType.DATE, pa.date32()),
    "i": (PrimitiveType.LONG, pa.int64()),
    "t": (PrimitiveType.BOOLEAN, pa.bool_()),
    "c": (DecimalType(9, 2), pa.decimal128(9, 2)),
    "d": (DOUBLE, pa.float64()),
    "m": (MapType(STRING), pa.map_(pa.string(), pa.string())),
    "n": (
        ObjectType((Field("l", ListType(MapType(DOUBLE))), Field("x", STRING))),
        pa.struct([("l", pa.list_(pa.map_(pa.string(), pa.float64()))), ("x", pa.string())]),
    ),
}
CONTRACT = Contract("t", "1", "", tuple(Field(name, kind) for name, (kind, _) in TYPES.items()), ("a", "i"), "at")
SCHEMA = pa.schema([(name, kind) for name, (_, kind) in TYPES.items()])
AT = datetime(2026, 11, 22, 8, 0, 0, 1, UTC)
BASE: dict[str, Any] = {
    "a": "x",
    "b": None,
    "at": AT,
    "d": 0.0,
    "m": [("k", "1"), ("l", None)],
    "n": {"l": [[("p", 0.0), ("q", 1.5)]], "x": None},
}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict.fromkeys(TYPES) | row for row in rows], schema=SCHEMA)


def hashes(*rows: dict[str, Any]) -> list[bytes]:
    found: list[bytes] = content_hashes(batch(*(BASE | row for row in rows)), CONTRACT).to_pylist()
    return found


@pytest.mark.parametrize(
    "other",
    [
        {"d": -0.0},
        {"m": [("l", None), ("k", "1")]},
        {"n": {"l": [[("q", 1.5), ("p", -0.0)]]}},
        {"at": AT.astimezone(None)},
    ],
    ids=["minus zero", "order of a map", "within", "zone"],
)
def test_equal_content(other: dict[str, Any]) -> None:
    one, two = hashes({}, other)
    assert one == two


@pytest.mark.parametrize(
    "other",
    [
        {"a": None, "b": "x"},
        {"a": ""},
        {"a": None},
        {"at": AT + timedelta(microseconds=1)},
        {"d": None},
        {"m": [("k", "1")]},
        {"m": []},
        {"m": None},
        {"m": [("k", "11:l"), ("", None)]},
        {"n": None},
        {"n": {"l": None, "x": None}},
        {"n": {"l": [], "x": None}},
        {"n": {"l": [None], "x": None}},
        {"n": {"l": [[("p", 0.0)], [("q", 1.5)]], "x": None}},
        {"n": {"l": [[("p", 0.0), ("q", 1.5)]], "x": ""}},
    ],
    ids=str,
)
def test_other_content(other: dict[str, Any]) -> None:
    one, two = hashes({}, other)
    assert one != two


def test_widened_and_renamed_columns_have_the_same_content() -> None:
    before = Contract("t", "1", "", (Field("f", PrimitiveType.FLOAT), Field("i", PrimitiveType.INT)), ("i",), "at")
    after = Contract(
        "t", "2", "", (Field("i", PrimitiveType.LONG), Field("g", DOUBLE, former_names=("f",))), ("i",), "at"
    )
    narrow = pa.record_batch({"f": pa.array([0.1, -0.0], pa.float32()), "i": pa.array([1, 2], pa.int32())})
    wide = pa.record_batch({"i": narrow["i"].cast(pa.int64()), "g": narrow["f"].cast(pa.float64())})
    assert content_hashes(narrow, before) == content_hashes(wide, after)
    assert keys(narrow, before) == keys(wide, after)


def test_a_field_within_an_object_that_was_renamed_has_the_same_content() -> None:
    before = Contract("t", "1", "", (Field("n", ObjectType((Field("x", STRING), Field("y", STRING)))),), (), "at")
    renamed = (Field("z", STRING, former_names=("x",)), Field("y", STRING))
    after = Contract("t", "2", "", (Field("n", ObjectType(renamed)),), (), "at")
    rows = pa.record_batch({"n": pa.array([{"x": "1", "y": "2"}])})
    newer = pa.record_batch({"n": pa.array([{"z": "1", "y": "2"}])})
    assert content_hashes(rows, before) == content_hashes(newer, after)


def test_keys_do_not_run_into_each_other() -> None:
    contract = Contract("t", "1", "", (Field("a", STRING), Field("b", STRING)), ("a", "b"), "at")
    rows = pa.record_batch({"a": ["1", "11:", ""], "b": ["1:b1:1", "b", "1"]})
    assert len(set(keys(rows, contract).to_pylist())) == 3


def test_null_lists_and_maps_of_objects_have_the_hashes_of_empty_ones() -> None:
    """The hashes in silver were computed like this; the rule holds at any depth, and for a slice."""
    item = ObjectType((Field("x", STRING),))
    kinds: dict[str, Type] = {
        "l": ListType(item),
        "m": MapType(item),
        "o": ObjectType((Field("l", ListType(item)), Field("y", STRING))),
        "ll": ListType(ListType(item)),
    }
    contract = Contract("t", "1", "", tuple(Field(name, kind) for name, kind in kinds.items()), (), "at")
    objects = pa.struct([("x", pa.string())])
    schema = pa.schema(
        [
            ("l", pa.list_(objects)),
            ("m", pa.map_(pa.string(), objects)),
            ("o", pa.struct([("l", pa.large_list(objects)), ("y", pa.string())])),
            ("ll", pa.list_(pa.list_(objects))),
        ]
    )
    rest: dict[str, Any] = {"l": [{"x": "1"}], "m": [("k", {"x": "1"})], "o": None, "ll": None}
    equal: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"l": None}, {"l": []}),
        ({"m": None}, {"m": []}),
        ({"o": {"l": None, "y": "1"}}, {"o": {"l": [], "y": "1"}}),
        ({"ll": [None]}, {"ll": [[]]}),
    ]
    for one, other in equal:
        rows = pa.RecordBatch.from_pylist([rest, rest | one, rest | other, rest], schema=schema)
        _, first, second, last = content_hashes(rows, contract).to_pylist()
        assert first == second != last
        assert content_hashes(rows.slice(1, 2), contract).to_pylist() == [first, second]
    rows = pa.RecordBatch.from_pylist([rest | {"ll": None}, rest | {"ll": []}], schema=schema)
    assert len(set(content_hashes(rows, contract).to_pylist())) == 2


TEXT = st.one_of(st.none(), st.text("a1:-", max_size=3))
MAPS = st.dictionaries(st.text("ab:", max_size=2), TEXT, max_size=3)
NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False))
RECORDS = st.fixed_dictionaries(
    {
        "a": TEXT,
        "b": TEXT,
        "at": st.one_of(st.none(), st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 2), timezones=st.just(UTC))),
        "on": st.sampled_from([None, date(2026, 1, 1), date(1969, 1, 1)]),
        "i": st.sampled_from([None, 0, -1, 12, 1 << 62]),
        "t": st.sampled_from([None, True, False]),
        "c": st.sampled_from([None, Decimal("0.00"), Decimal("-1.50"), Decimal("1.50")]),
        "d": NUMBERS,
        "m": st.one_of(st.none(), MAPS),
        "n": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {
                    "x": TEXT,
                    "l": st.one_of(
                        st.none(),
                        st.lists(st.one_of(st.none(), st.dictionaries(st.text("pq", max_size=1), NUMBERS)), max_size=2),
                    ),
                }
            ),
        ),
    }
)


def landed(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its maps as Arrow takes them, in their own order."""
    inner = record["n"]
    if inner:
        lists = inner["l"] and [None if each is None else list(each.items()) for each in inner["l"]]
        inner = inner | {"l": lists}
    return record | {"m": None if record["m"] is None else list(record["m"].items()), "n": inner}


@given(st.lists(RECORDS, min_size=1, max_size=8), st.integers(0, 3))
def test_hashes_are_equal_for_equal_records_alone(records: list[dict[str, Any]], begin: int) -> None:
    rows = batch(*map(landed, [*records, *reversed(records)])).slice(begin)  # with an offset, as batches of a file
    of = [*records, *reversed(records)][begin:]
    found = content_hashes(rows, CONTRACT).to_pylist()
    for one, its in zip(of, found, strict=True):
        for other, others in zip(of, found, strict=True):
            assert (its == others) == (one == other), (one, other)


def test_what_is_derived_is_no_content() -> None:
    derived = tuple(
        replace(field, derived=Derived(DerivedFrom.INGESTION)) if field.name == "at" else field for field in CONTRACT
    )
    one, other = (batch(BASE | {"at": at}) for at in (AT, AT + timedelta(1)))
    contract = replace(CONTRACT, fields=derived)
    assert content_hashes(one, contract) == content_hashes(other, contract)
    assert content_hashes(one, CONTRACT) != content_hashes(other, CONTRACT)
