"""What a contract may say, and what is said to its author when it may not."""

import hashlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lakeproof.contracts import DecimalType, ListType, MapType, ObjectType, PrimitiveType, load_contract, parse_contract
from lakeproof.errors import UsageError

FOLDER = Path(__file__).parents[3] / "contracts"


def document(properties, **more):
    return {
        "apiVersion": "v3.2.0",
        "kind": "DataContract",
        "id": "x",
        "version": "2.1.0",
        "status": "active",
        "customProperties": [{"property": "eventTime", "value": "at"}],
        "schema": [{"name": "things", "logicalType": "object", "properties": properties}],
    } | more


KEY = {"name": "id", "logicalType": "string", "primaryKey": True}
AT = {"name": "at", "logicalType": "timestamp"}


def parse(*properties, **more):
    return parse_contract(yaml.safe_dump(document([KEY, AT, *properties], **more)).encode(), "things.yaml")


def type_of(**property_):
    return parse({"name": "f", **property_}).fields[2].type


def test_the_events_contract():
    contract = load_contract(FOLDER, "events")
    assert contract.digest == hashlib.sha256((FOLDER / "events.yaml").read_bytes()).hexdigest()
    assert (contract.stream, contract.version, contract.primary_key, contract.event_time) == (
        "events",
        "1.0.0",
        ("event_id",),
        "event_timestamp",
    )
    fields = {field.name: field for field in contract}
    assert {name for name, field in fields.items() if field.required} == {
        "user_id",
        "event_id",
        "event_timestamp",
        "event_type",
    }
    assert fields["event_type"].allowed == ("page_view", "purchase")
    assert fields["properties"].type == MapType(PrimitiveType.SCALAR)


@pytest.mark.parametrize(
    ("property_", "expected"),
    [
        ({"logicalType": "integer"}, PrimitiveType.LONG),
        ({"logicalType": "integer", "physicalType": "int"}, PrimitiveType.INT),
        ({"logicalType": "number"}, PrimitiveType.DOUBLE),
        ({"logicalType": "number", "physicalType": "decimal(38, 10)"}, DecimalType(38, 10)),
        ({"logicalType": "date"}, PrimitiveType.DATE),
        ({"logicalType": "array", "items": {"logicalType": "integer"}}, ListType(PrimitiveType.LONG)),
        ({"logicalType": "map", "map": {"key": {"logicalType": "string"}, "value": {"logicalType": "boolean"}}},
         MapType(PrimitiveType.BOOLEAN)),
    ],
)  # fmt: skip
def test_types(property_, expected):
    assert type_of(**property_) == expected


def test_an_object_within_an_array():
    inner = {"logicalType": "object", "properties": [{"name": "a", "logicalType": "string", "required": True}]}
    kind = type_of(logicalType="array", items=inner)
    assert isinstance(kind, ListType)
    assert isinstance(kind.item, ObjectType)
    assert kind.item.fields[0].required


@pytest.mark.parametrize(
    ("property_", "says"),
    [
        ({"logicalType": "string", "physicalType": "varchar(3)"}, r"things.yaml: f: unknown type 'varchar\(3\)'"),
        ({"logicalType": "number", "physicalType": "decimal(39, 1)"}, "is not possible"),
        ({"logicalType": "number", "physicalType": "decimal(3, 4)"}, "is not possible"),
        ({"logicalType": "number", "physicalType": "decimal(0, 0)"}, "is not possible"),
        ({"logicalType": "array"}, "f is an array without items"),
        ({"logicalType": "map"}, "f is a map without"),
        ({"logicalType": "object"}, "f has no properties"),
        ({"name": "ID", "logicalType": "string"}, "one column"),
        ({"name": "a b", "logicalType": "string"}, "'a b'"),
        ({"name": "1a", "logicalType": "string"}, "'1a'"),
        ({"name": 'a";drop', "logicalType": "string"}, "named"),
    ],
)
def test_refused_properties(property_, says):
    with pytest.raises(UsageError, match=says):
        parse({"name": "f", **property_})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: [", r"things.yaml:1: not YAML"),
        (b"", r"things.yaml: "),
        (b"[]", r"things.yaml: "),
        (b"just text", r"things.yaml: "),
        (b"\xff\xfe\x00", r"things.yaml"),
        (b"a: \x00", r"things.yaml"),
        (b"a: !!python/object:os.system {}", r"things.yaml"),
        (b"a: 2026-99-99", r"things.yaml"),
        (b"[" * 5000, r"things.yaml"),
        (yaml.safe_dump(document([AT])).encode(), "primaryKey"),
        (yaml.safe_dump(document([KEY])).encode(), "eventTime"),
        (yaml.safe_dump(document([KEY, AT], customProperties=[])).encode(), "eventTime names None"),
        (yaml.safe_dump(document([])).encode(), "no properties"),
        (yaml.safe_dump(document([KEY, AT], schema=[])).encode(), "exactly one schema object"),
        (yaml.safe_dump(document([KEY, AT], version=None)).encode(), "version"),
    ],
)
def test_refused_files(text, says):
    with pytest.raises(UsageError, match=says) as caught:
        parse_contract(text, "things.yaml")
    assert "\n" not in caught.value.message


@given(st.binary(max_size=200))
def test_no_bytes_cause_anything_but_a_usage_error(text):
    with pytest.raises(UsageError):
        parse_contract(text, "x.yaml")


def test_a_composite_key_keeps_its_order():
    contract = parse({"name": "f", "logicalType": "string", "primaryKey": True, "primaryKeyPosition": -1})
    assert contract.primary_key == ("f", "id")


def test_a_stream_without_a_contract_names_those_there_are(tmp_path):
    with pytest.raises(UsageError, match="no contract for the stream 'evnts'") as caught:
        load_contract(FOLDER, "evnts")
    assert "events" in caught.value.hint
    with pytest.raises(UsageError):
        load_contract(tmp_path / "missing", "events")
