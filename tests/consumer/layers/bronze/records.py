"""Records of every type, each value as JSON text and as the value to read back; made without the consumer's code."""

import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

Value = tuple[str, Any]
"""JSON text, and the Python value that every engine must return for it."""
NULL: Value = ("null", None)


@dataclass(frozen=True)
class Record:
    """A landed record: its text, and its columns; a missing column is null."""

    text: str
    columns: dict[str, Any] = field(default_factory=dict)


def exact(value: Any) -> Any:
    """Return a value that equals another one only if type, sign, scale and every bit are equal."""
    match value:
        case float():
            return "float", struct.pack(">d", value)
        case Decimal():
            return "decimal", value.as_tuple()
        case datetime():
            return "datetime", value.utcoffset(), value.replace(tzinfo=None)
        case dict():
            return "dict", {key: exact(item) for key, item in value.items()}
        case list():
            return "list", [exact(item) for item in value]
    return type(value).__name__, value


def member(name: str, text: str) -> str:
    return f"{json.dumps(name)}:{text}"


@st.composite
def strings(draw: st.DrawFn) -> Value:
    text = draw(st.sampled_from(["", "null", "\x00", "a\x00b", "😀", "\ufeff", "é", "e\u0301"]) | st.text(max_size=12))
    escaped = text.encode("utf-16-be")
    every = "".join(f"\\u{escaped[at : at + 2].hex()}" for at in range(0, len(escaped), 2))
    return draw(st.sampled_from([json.dumps(text), json.dumps(text, ensure_ascii=False), f'"{every}"'])), text


def integers(bits: int) -> st.SearchStrategy[Value]:
    end = 1 << (bits - 1)
    edges = [0, 1, -1, end - 1, -end, end - 2, 1 - end]
    if bits > 53:
        edges += [2**53, 2**53 + 1, -(2**53) - 1]
    return (st.sampled_from(edges) | st.integers(-end, end - 1)).map(lambda number: (str(number), number))


def floats(bits: int) -> st.SearchStrategy[Value]:
    smallest, largest = (5e-324, 1.7976931348623157e308) if bits == 64 else (2.0**-149, 3.4028234663852886e38)
    edges = [0.0, -0.0, smallest, -smallest, largest, -largest, 1.5]
    numbers = st.sampled_from(edges) | st.floats(allow_nan=False, allow_infinity=False, width=bits)
    return numbers.map(lambda number: (repr(number), number))


@st.composite
def decimals(draw: st.DrawFn, precision: int, scale: int) -> Value:
    largest = 10**precision - 1
    unscaled = draw(st.sampled_from([0, 1, largest, -largest, 10**scale]) | st.integers(-largest, largest))
    digits = str(abs(unscaled)).zfill(scale + 1)
    whole, fraction = digits[:-scale], digits[-scale:]
    forms = [
        f"{whole}.{fraction}",
        f"{whole}.{fraction}000",
        f"{whole}.{fraction}".rstrip("0").rstrip("."),
        f"{abs(unscaled)}e-{scale}",
        f"0.{digits}E+{len(whole)}",
    ]
    sign = "-" if unscaled < 0 else ""
    value = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    return sign + draw(st.sampled_from(forms)), value


@st.composite
def timestamps(draw: st.DrawFn) -> Value:
    local = draw(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)))
    minutes = draw(st.sampled_from([0, 60, 14 * 60, -12 * 60, 345, -210]) | st.integers(-1439, 1439))
    sign, hours, rest = "-" if minutes < 0 else "+", abs(minutes) // 60, abs(minutes) % 60
    zones = [f"{sign}{hours:02}:{rest:02}", f"{sign}{hours:02}{rest:02}"]
    zones += [f"{sign}{hours:02}"] * (rest == 0) + ["Z"] * (minutes == 0)
    whole, micros = local.replace(microsecond=0).isoformat(), f"{local.microsecond:06}"
    fractions = [f".{micros}", f".{micros}000"] + [f".{micros.rstrip('0')}"] * (micros != "000000")
    fractions += [""] * (micros == "000000")
    text = whole + draw(st.sampled_from(fractions)) + draw(st.sampled_from(zones))
    return json.dumps(text), local.replace(tzinfo=UTC) - timedelta(minutes=minutes)


booleans = st.sampled_from([("true", True), ("false", False)])
dates = (st.sampled_from([date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 10)]) | st.dates()).map(
    lambda day: (f'"{day.isoformat()}"', day)
)
numbers = st.sampled_from(["0", "-0", "1.50", "1e400", "9007199254740993", "123456789012345678901234567890", "1E+2"])
scalars = strings() | numbers.map(lambda text: (text, text)) | booleans.map(lambda value: (value[0], value[0]))


def maps(items: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    keys = st.sampled_from(["a", "A", "ä", "Ä", "", "\x00", "odd key", "$.a"]) | st.text(max_size=4)

    def build(entries: dict[str, Value]) -> Value:
        text = ",".join(member(key, item) for key, (item, _) in entries.items())
        return f"{{{text}}}", {key: value for key, (_, value) in entries.items()}

    return st.dictionaries(keys, st.just(NULL) | items, max_size=4).map(build)


def arrays(items: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.lists(st.just(NULL) | items, max_size=4).map(
        lambda found: (f"[{','.join(text for text, _ in found)}]", [value for _, value in found])
    )


@st.composite
def objects(draw: st.DrawFn, fields: dict[str, st.SearchStrategy[Value]], required: tuple[str, ...] = ()) -> Value:
    found = {}
    for name, values in fields.items():
        form = 2 if name in required else draw(st.integers(0, 5))
        if form:  # else absent
            found[name] = NULL if form == 1 else draw(values)
    names = draw(st.permutations(list(found)))
    text = ",".join(member(name, found[name][0]) for name in names)
    return f"{{{text}}}", {name: found.get(name, NULL)[1] for name in fields}


COLUMNS: dict[str, st.SearchStrategy[Value]] = {
    "id": strings(),
    # Few days, since each one makes a partition.
    "at": st.sampled_from(
        [
            ('"2026-11-21T12:30:00.000001+14:00"', datetime(2026, 11, 20, 22, 30, 0, 1, UTC)),
            ('"1969-12-31T23:59:59.999999-12:00"', datetime(1970, 1, 1, 11, 59, 59, 999999, UTC)),
            ('"0000-12-31T12:00:00-12:00"', datetime(1, 1, 1, tzinfo=UTC)),
            ('"9999-12-31T23:59:59.999999Z"', datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
        ]
    ),
    "string": strings(),
    "scalar": scalars,
    "boolean": booleans,
    "int": integers(32),
    "long": integers(64),
    "float": floats(32),
    "double": floats(64),
    "decimal": decimals(38, 10),
    "price": decimals(9, 2),
    "timestamp": timestamps(),
    "date": dates,
    "map": maps(scalars),
    "prices": maps(decimals(9, 2)),
    "named": maps(objects({"long": integers(64)})),
    "array": arrays(integers(64)),
    "object": objects(
        {
            "string": strings(),
            "timestamp": timestamps(),
            "decimal": decimals(38, 10),
            "inner": objects({"long": integers(64)}),
        }
    ),
    "objects": arrays(
        objects({"double": floats(64), "tags": arrays(strings()), "counts": maps(integers(32))}),
    ),
}
records: st.SearchStrategy[Record] = objects(COLUMNS, required=("id", "at")).map(lambda found: Record(*found))


def record(column: str, token: str | None, value: Any = None) -> Record:
    """Return a record with one value beside the required fields; without a token, the field is missing."""
    members = [member("id", '"i"'), member("at", '"2026-11-21T12:30:00Z"')]
    members += [member(column, token)] if token is not None else []
    columns = dict.fromkeys(COLUMNS) | {"id": "i", "at": datetime(2026, 11, 21, 12, 30, tzinfo=UTC), column: value}
    return Record(f"{{{','.join(members)}}}", columns)


EXPLICIT: list[tuple[str, str | None, Any]] = [
    ("long", "9007199254740993", 2**53 + 1),
    ("long", "-9007199254740993", -(2**53) - 1),
    ("long", "9223372036854775807", 2**63 - 1),
    ("long", "-9223372036854775808", -(2**63)),
    ("int", "2147483647", 2**31 - 1),
    ("int", "-2147483648", -(2**31)),
    ("double", "9007199254740993", 2.0**53),
    ("double", "0.1", 0.1),
    ("double", "0.10000000000000000000000001", 0.1),
    ("double", "-0.0", -0.0),
    ("double", "-0", -0.0),
    ("double", "-0e5", -0.0),
    ("double", "5e-324", 5e-324),
    ("double", "2e-324", 0.0),
    ("double", "-1e-400", -0.0),
    ("double", "2.2250738585072011e-308", 2.225073858507201e-308),
    ("double", "1.7976931348623157e308", 1.7976931348623157e308),
    ("float", "0.1", 0.10000000149011612),
    ("float", "16777217", 16777216.0),
    ("float", "-0.0", -0.0),
    ("float", "1e-45", 2.0**-149),
    ("float", "3.4028235e38", 3.4028234663852886e38),
    ("decimal", "1.50", Decimal("1.5000000000")),
    ("decimal", "1.5000000000000000000000", Decimal("1.5000000000")),
    ("decimal", "-0.0", Decimal("0E-10")),
    ("decimal", "1e-10", Decimal("1E-10")),
    ("decimal", "0e99", Decimal("0E-10")),
    ("decimal", "9999999999999999999999999999.9999999999", Decimal("9999999999999999999999999999.9999999999")),
    ("decimal", "-9999999999999999999999999999.9999999999", Decimal("-9999999999999999999999999999.9999999999")),
    ("decimal", "1E+2", Decimal("100.0000000000")),
    ("price", "9999999.99", Decimal("9999999.99")),
    ("price", "12", Decimal("12.00")),
    ("scalar", "1.50", "1.50"),
    ("scalar", '"1.50"', "1.50"),
    ("scalar", "true", "true"),
    ("scalar", "-0", "-0"),
    ("scalar", "null", None),
    ("scalar", '"null"', "null"),
    ("string", '""', ""),
    ("string", "null", None),
    ("string", None, None),
    ("string", '"\\u0000"', "\x00"),
    ("string", '"a\\u0000b"', "a\x00b"),
    ("string", '"\\ud83d\\ude00"', "😀"),
    ("string", '"😀"', "😀"),
    ("string", '"e\\u0301"', "e\u0301"),
    ("string", '"\\r\\n\\t "', "\r\n\t "),
    ("timestamp", '"2026-11-21T12:30:00.123456Z"', datetime(2026, 11, 21, 12, 30, 0, 123456, UTC)),
    ("timestamp", '"2026-11-21T12:30:00.000001+14:00"', datetime(2026, 11, 20, 22, 30, 0, 1, UTC)),
    ("timestamp", '"2026-11-21T12:30:00-12:00"', datetime(2026, 11, 22, 0, 30, tzinfo=UTC)),
    ("timestamp", '"1969-12-31T23:59:59.999999Z"', datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    ("timestamp", '"1582-10-10T00:00:00Z"', datetime(1582, 10, 10, tzinfo=UTC)),
    ("timestamp", '"0001-01-01T00:00:00Z"', datetime(1, 1, 1, tzinfo=UTC)),
    ("timestamp", '"0000-12-31T10:00:00-14:00"', datetime(1, 1, 1, tzinfo=UTC)),
    ("timestamp", '"9999-12-31T23:59:59.999999Z"', datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    ("date", '"0001-01-01"', date(1, 1, 1)),
    ("date", '"1582-10-10"', date(1582, 10, 10)),
    ("date", '"9999-12-31"', date(9999, 12, 31)),
    ("map", "{}", {}),
    ("map", "null", None),
    ("map", None, None),
    ("map", '{"a":null}', {"a": None}),
    ("map", '{"":""}', {"": ""}),
    ("map", '{"key":1,"Key":2,"KEY":3}', {"key": "1", "Key": "2", "KEY": "3"}),
    ("prices", '{"a":1.5,"A":null}', {"a": Decimal("1.50"), "A": None}),
    ("named", "{}", {}),
    ("named", "null", None),
    ("named", '{"a":{},"A":{"long":1},"b":null}', {"a": {"long": None}, "A": {"long": 1}, "b": None}),
    ("array", "[]", []),
    ("array", "null", None),
    ("array", "[null]", [None]),
    ("array", "[9007199254740993,null,-9223372036854775808]", [2**53 + 1, None, -(2**63)]),
    ("object", "{}", {"string": None, "timestamp": None, "decimal": None, "inner": None}),
    ("object", "null", None),
    ("object", None, None),
    ("object", '{"inner":{}}', {"string": None, "timestamp": None, "decimal": None, "inner": {"long": None}}),
    (
        "object",
        '{"string":"","timestamp":"0001-01-01T00:00:00Z","decimal":-1,"inner":{"long":9007199254740993}}',
        {
            "string": "",
            "timestamp": datetime(1, 1, 1, tzinfo=UTC),
            "decimal": Decimal("-1.0000000000"),
            "inner": {"long": 2**53 + 1},
        },
    ),
    ("objects", "[]", []),
    (
        "objects",
        '[null,{},{"double":-0.0,"tags":[],"counts":{}},{"tags":["",null],"counts":{"a":null,"A":2147483647}}]',
        [
            None,
            {"double": None, "tags": None, "counts": None},
            {"double": -0.0, "tags": [], "counts": {}},
            {"double": None, "tags": ["", None], "counts": {"a": None, "A": 2**31 - 1}},
        ],
    ),
]
"""Column, token (None: the field is missing) and value of known trouble spots."""
