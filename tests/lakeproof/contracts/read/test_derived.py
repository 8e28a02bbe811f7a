"""Fields derived during ingestion: valid options in a contract, and their effect on records."""

import json
from typing import Any

import pytest
from tests.judging import units_of

from lakeproof.contracts import Contract, Derived, DerivedFrom, Field, PrimitiveType, parse_contract
from lakeproof.contracts.diff import changes, compatibility
from lakeproof.contracts.json_schema import json_schema
from lakeproof.errors import UsageError
from lakeproof.judge.batch import Judge

ID = {"name": "id", "logicalType": "integer", "required": True}


def parse(*properties: dict[str, Any], quality: tuple[dict[str, str], ...] = ()) -> Contract:
    at = {"name": "at", "logicalType": "timestamp"}
    document = {
        "apiVersion": "v3.2.0",
        "kind": "DataContract",
        "version": "1",
        "customProperties": [{"property": "eventTime", "value": "at"}],
        "schema": [{"name": "things", "properties": [at, ID, *properties], "quality": [*quality]}],
    }
    return parse_contract(json.dumps(document).encode(), "things.yaml")


def derived(value: Any, kind: str = "string", **more: Any) -> dict[str, Any]:
    custom = [{"property": "derived", "value": value}]
    return {"name": "d", "logicalType": kind, "customProperties": custom} | more


CORRELATION = derived("correlationId(id)", required=True, primaryKey=True)


def test_what_a_derived_field_says() -> None:
    contract = parse(CORRELATION)
    how = Derived(DerivedFrom.CORRELATION, "id")
    assert contract.derived == (Field("d", PrimitiveType.STRING, required=True, derived=how),)
    assert (contract.primary_key, str(how)) == (("d",), "correlationId(id)")
    assert contract.silver is not None
    when = parse(derived("ingestionTimestamp", "timestamp"))
    assert [field.derived for field in when.derived] == [Derived(DerivedFrom.INGESTION)]
    which = parse(derived("schemaId", "integer", physicalType="int"))
    assert [field.derived for field in which.derived] == [Derived(DerivedFrom.SCHEMA)]


def test_records_do_not_have_it() -> None:
    contract = parse(CORRELATION)
    assert [field.name for field in contract.live] == ["at", "id"]
    assert [field.name for field in contract.current] == ["at", "id", "d"]
    assert json_schema(contract)["properties"].keys() == {"at", "id"}
    good, bad = units_of(Judge(contract).judge(b'[{"id": 1}, {"id": 1, "d": "x"}]'))
    assert {name: value for name, value in good.items() if value is not None} == {"id": 1, "_position": 0}
    assert [reason["code"] for reason in bad["reasons"]] == ["unknown_field"]


def test_a_dropped_one_is_not_derived() -> None:
    custom = [{"property": "derived", "value": "correlationId(id)"}, {"property": "dropped", "value": True}]
    assert parse({"name": "d", "logicalType": "string", "customProperties": custom}).derived == ()


@pytest.mark.parametrize(
    ("property_", "said"),
    [
        (derived("correlationID(id)"), "unknown derived 'correlationID(id)'."),
        (derived("correlationId"), "unknown derived 'correlationId'."),
        (derived("ingestionTimestamp(id)", "timestamp"), "unknown derived"),
        (derived(["correlationId(id)"]), "unknown derived"),
        (derived("ingestionTimestamp"), "ingestionTimestamp is timestamp, but the field is string."),
        (derived("correlationId(id)", "integer"), "correlationId(id) is string, but the field is long."),
        (derived("schemaId", "integer"), "schemaId is int, but the field is long."),
        (derived("schemaId", "integer", physicalType="int", required=True), "schemaId cannot be required"),
        (derived("correlationId(other)"), "'other' does not identify a record."),
        (derived("correlationId(d)"), "'d' does not identify a record."),
        (derived("correlationId(at)"), "'at' does not identify a record."),
        (derived("correlationId(id)", enum=["a"]), "enum is not supported for a derived field."),
        (
            derived("correlationId(id)", logicalTypeOptions={"maxLength": 1}),
            "logicalTypeOptions is not supported for a derived field.",
        ),
        (
            {"name": "o", "logicalType": "object", "properties": [derived("correlationId(id)")]},
            "derived is only supported for fields outside of objects.",
        ),
        (
            {"name": "d", "logicalType": "string", "customProperties": [{"property": "Derived", "value": "x"}]},
            "did you mean derived?",
        ),
    ],
)
def test_what_is_refused(property_: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(property_)
    assert said in error.value.message


def test_a_rule_cannot_use_it() -> None:
    rule = {"type": "sql", "name": "r", "query": "d <> ''"}
    with pytest.raises(UsageError, match="unknown field"):
        parse(CORRELATION, quality=(rule,))


def test_what_a_change_means() -> None:
    plain, with_it = parse(), parse(derived("correlationId(id)"))
    for old, new, what in (
        (plain, with_it, "derived field added"),
        (with_it, plain, "derived field removed"),
    ):
        found = changes(old, new)
        assert ([change.what for change in found], compatibility(found)) == ([what], "full")
    landed = parse({"name": "d", "logicalType": "string"})
    for old, new in ((with_it, landed), (landed, with_it)):
        (change,) = changes(old, new)
        assert (compatibility((change,)), change.obstacle) == ("breaking", "existing rows have the old values")
    (required,) = changes(plain, parse(derived("correlationId(id)", required=True)))
    assert required.obstacle == "existing rows may not have it"
