"""Deprecated, dropped and renamed fields: valid options in a contract, and their effect on records."""

import json
from typing import Any

import pytest
from tests.judging import units_of

from lakeproof.contracts import (
    Contract,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    parse_contract,
)
from lakeproof.contracts.json_schema import json_schema
from lakeproof.errors import UsageError
from lakeproof.judge.batch import Judge

STRING = PrimitiveType.STRING
DROPPED = [{"property": "dropped", "value": True}]


def parse(*properties: dict[str, Any], policy: str = "freeze", rules: tuple[str, ...] = ()) -> Contract:
    at = {"name": "at", "logicalType": "timestamp"}
    fields = [{"logicalType": "string"} | each for each in (at, *properties)]
    quality = [{"type": "sql", "name": f"r{number}", "query": query} for number, query in enumerate(rules)]
    document = {
        "apiVersion": "v3.2.0",
        "kind": "DataContract",
        "version": "1",
        "customProperties": [{"property": "eventTime", "value": "at"}, {"property": "driftPolicy", "value": policy}],
        "schema": [{"name": "things", "properties": fields, "quality": quality}],
    }
    return parse_contract(json.dumps(document).encode(), "things.yaml")


def renamed(*names: str) -> dict[str, Any]:
    return {"customProperties": [{"property": "renamedFrom", "value": list(names)}]}


def test_what_a_field_says() -> None:
    _, a, b, c = parse(
        {"name": "a", "deprecated": True},
        {"name": "b", "customProperties": DROPPED},
        {"name": "c", "customProperties": [{"property": "renamedFrom", "value": "z"}]},
    )
    assert (a, b) == (Field("a", STRING, deprecated=True), Field("b", STRING, dropped=True))
    assert (c, c.first_name, a.first_name) == (Field("c", STRING, former_names=("z",)), "z", "a")
    assert parse({"name": "c"} | renamed("x", "y")).renamed == {"x": "c", "y": "c"}


def test_live_fields_at_any_depth() -> None:
    inner = [
        {"name": "x", "logicalType": "string"},
        {"name": "y", "logicalType": "string", "customProperties": DROPPED},
    ]
    kind = {"logicalType": "object", "properties": inner}
    contract = parse(
        {"name": "o"} | kind, {"name": "l", "logicalType": "array", "items": kind},
        {"name": "m", "logicalType": "map", "map": {"value": kind}}, {"name": "gone", "customProperties": DROPPED},
    )  # fmt: skip
    only = ObjectType((Field("x", STRING),))
    assert [each.type for each in contract.live[1:]] == [only, ListType(only), MapType(only)]
    assert len(contract.fields) == len(contract.live) + 1


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ({"deprecated": True, "required": True}, "f: a deprecated field cannot have required: true"),
        ({"customProperties": DROPPED, "required": True}, "f: a dropped field cannot have required: true"),
        ({"deprecated": True, "primaryKey": True}, "f: a deprecated field cannot have primaryKey: true"),
        ({"deprecated": "perhaps"}, "f: deprecated: expected true or false, got 'perhaps'"),
        ({"customProperties": [{"property": "dropped", "value": 1}]}, "f: dropped: expected true or false, got 1"),
        ({"customProperties": [{"property": "droped", "value": True}]}, "unknown custom property 'droped'"),
        ({"customProperties": [*DROPPED, *DROPPED]}, "duplicate custom property dropped"),
        (renamed("at"), "the fields 'at' and 'at' would be one column"),
        (renamed("F"), "the fields 'f' and 'F' would be one column"),
        ({"name": "g", **renamed("h", "h")}, "the fields 'h' and 'h' would be one column"),
        ({"name": "x", **renamed("x")}, "the fields 'x' and 'x' would be one column"),
        (renamed("a b"), "'a b' is not a valid name for a property"),
        (renamed(), r"renamedFrom: expected a name, or a list of names, got \[\]"),
        ({"customProperties": [{"property": "renamedFrom", "value": 1}]}, "renamedFrom: expected a name"),
        (
            {"logicalType": "object", "properties": [{"name": "x", "logicalType": "string"} | renamed("y")]},
            "f.x: renamedFrom is only supported for fields outside of objects",
        ),
        ({"logicalType": "array", "items": {"logicalType": "string", "deprecated": True}}, "deprecated is only"),
        (
            {"logicalType": "array", "items": {"logicalType": "string", "customProperties": DROPPED}},
            "the custom property dropped has no effect here",
        ),
    ],
)
def test_refused(field: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=rf"^things.yaml:\d+:\d+: .*{says}") as caught:
        parse({"name": "f"} | field)
    assert caught.value.hint


def test_nothing_can_use_a_field_that_was_dropped() -> None:
    with pytest.raises(UsageError, match="invalid rule r0: unknown field gone"):
        parse({"name": "gone", "customProperties": DROPPED}, rules=("gone IS NULL",))
    with pytest.raises(UsageError, match="eventTime is 'at', which is not a timestamp field"):
        parse_contract(
            json.dumps(
                {
                    "apiVersion": "v3.2.0", "kind": "DataContract", "version": "1",
                    "customProperties": [{"property": "eventTime", "value": "at"}],
                    "schema": [{"name": "x", "properties": [
                        {"name": "at", "logicalType": "timestamp", "customProperties": DROPPED}]}],
                }
            ).encode(),
            "x.yaml",
        )  # fmt: skip


@pytest.mark.parametrize("policy", DriftPolicy)
@pytest.mark.parametrize("text", ['"g"', "null", "1"])
def test_a_record_that_has_a_dropped_field_has_an_unknown_one(policy: DriftPolicy, text: str) -> None:
    contract = parse({"name": "a"}, {"name": "gone", "customProperties": DROPPED}, policy=policy)
    plain = parse({"name": "a"}, policy=policy)
    batch = b'[{"at": "2026-11-21T12:30:00Z", "a": "x", "gone": %s}, {"a": "y"}]' % text.encode()
    assert units_of(Judge(contract).judge(batch)) == units_of(Judge(plain).judge(batch))


def test_a_record_has_the_current_name() -> None:
    contract = parse({"name": "b"} | renamed("a"))
    good, bad = units_of(Judge(contract).judge(b'[{"b": "x"}, {"a": "x"}]'))
    assert (good["b"], good["reasons"]) == ("x", None)
    assert [(reason["code"], reason["path"]) for reason in bad["reasons"]] == [("unknown_field", "$.a")]


def test_json_schema() -> None:
    schema = json_schema(parse({"name": "a", "deprecated": True}, {"name": "gone", "customProperties": DROPPED}))
    assert schema["properties"].keys() == {"at", "a"}
    assert schema["properties"]["a"]["deprecated"] is True
    assert json.dumps(schema).count("deprecated") == 1
