"""A contract in two versions with every allowed change of a column, and records of both."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from lakeproof.settings import Settings

STREAM = "orders"
_HEAD = """\
apiVersion: v3.2.0
kind: DataContract
id: orders
version: VERSION
status: active
customProperties:
  - {property: eventTime, value: at}
schema:
  - name: orders
    properties:
      - {name: id, logicalType: string, required: true, primaryKey: true}
      - {name: at, logicalType: timestamp, required: true}
"""
_GONE = "{name: gone, logicalType: string, MORE}"
_A = "{name: a, logicalType: integer, physicalType: int}"
V1 = [
    "{name: count, logicalType: integer, physicalType: int, required: true, description: How many.}",
    "{name: ratio, logicalType: number, physicalType: float}",
    "{name: total, logicalType: number, physicalType: 'decimal(9,2)'}",
    f"{{name: place, logicalType: object, properties: [{_A}, {_GONE.replace('MORE', 'deprecated: true')}]}}",
    f"{{name: lines, logicalType: array, items: {{logicalType: object, properties: [{_A}]}}}}",
    f"{{name: named, logicalType: map, map: {{value: {{logicalType: object, properties: [{_A}]}}}}}}",
    "{name: numbers, logicalType: array, items: {logicalType: integer, physicalType: int}}",
    "{name: nick, logicalType: string}",
    "{name: code, logicalType: string, deprecated: true}",
]
_DROPPED = "customProperties: [{property: dropped, value: true}]"
_WIDE_A = "{name: a, logicalType: integer}, {name: b, logicalType: string}"
_PLACE = _WIDE_A.replace("}, {", f"}}, {_GONE.replace('MORE', _DROPPED)}, {{")
V2 = [
    "{name: note, logicalType: string, description: What was said.}",
    "{name: count, logicalType: integer}",
    "{name: ratio, logicalType: number, physicalType: double}",
    "{name: total, logicalType: number, physicalType: 'decimal(20,2)'}",
    f"{{name: place, logicalType: object, properties: [{_PLACE}]}}",
    f"{{name: lines, logicalType: array, items: {{logicalType: object, properties: [{_WIDE_A}]}}}}",
    f"{{name: named, logicalType: map, map: {{value: {{logicalType: object, properties: [{_WIDE_A}]}}}}}}",
    "{name: numbers, logicalType: array, items: {logicalType: integer}}",
    "{name: alias, logicalType: string, customProperties: [{property: renamedFrom, value: nick}]}",
    f"{{name: code, logicalType: string, {_DROPPED}}}",
]
AT = "2026-11-21T06:00:00Z"
LONG = 2**40 + 1
OLD: dict[str, Any] = {
    "id": "old",
    "at": AT,
    "count": 7,
    "ratio": 0.1,
    "total": 1234567.89,
    "place": {"a": 1, "gone": "g"},
    "lines": [{"a": 2}, None],
    "named": {"x": {"a": 3}},
    "numbers": [4, None],
    "nick": "n",
    "code": "c",
}
NEW: dict[str, Any] = {
    "id": "new",
    "at": AT,
    "note": "hello",
    "count": LONG,
    "ratio": 0.1,
    "total": 123456789012345678.25,
    "place": {"a": LONG, "b": "p"},
    "lines": [{"a": LONG, "b": "l"}],
    "named": {"x": {"a": LONG, "b": "n"}},
    "numbers": [LONG],
    "alias": "m",
}
FLOAT = 0.10000000149011612
"""0.1 as a float, converted to a double."""
READ = [
    NEW | {"total": Decimal("123456789012345678.25"), "place": {"a": LONG, "b": "p", "gone": None}, "code": None},
    OLD
    | {
        "note": None,
        "ratio": FLOAT,
        "total": Decimal("1234567.89"),
        "alias": "n",
        "place": {"a": 1, "b": None, "gone": "g"},
        "lines": [{"a": 2, "b": None}, None],
        "named": {"x": {"a": 3, "b": None}},
    },
]
"""Both records as read by any engine after the second contract is applied, by ID; `at` is a time."""


def text(record: dict[str, Any]) -> str:
    """Return a record as landed text."""
    return json.dumps(record).replace("1.2345678901234568e+17", "123456789012345678.25")


def write_contract(settings: Settings, version: str, fields: Sequence[str] = V1, more: str = "") -> None:
    """Write ``orders.yaml`` to the lake's folder of contracts."""
    settings.contracts.mkdir(exist_ok=True)
    body = "".join(f"      - {field}\n" for field in fields)
    (settings.contracts / f"{STREAM}.yaml").write_text(_HEAD.replace("VERSION", version) + body + more)


def land(settings: Settings, name: str, *records: dict[str, Any]) -> None:
    """Land records as a batch."""
    folder = settings.home / "landing" / STREAM
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.tmp").write_text(f"[{', '.join(map(text, records))}]")
    (folder / f"{name}.tmp").rename(folder / name)
