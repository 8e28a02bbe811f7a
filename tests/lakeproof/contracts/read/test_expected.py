"""The range that marks values: valid options in a contract; it rejects nothing."""

from decimal import Decimal
from typing import Any

import pytest
from tests.judging import units_of
from tests.lakeproof.contracts.read.test_lifecycle import parse

from lakeproof.contracts.diff import Compatibility, changes, compatibility
from lakeproof.contracts.model import Expected
from lakeproof.errors import UsageError
from lakeproof.judge.batch import Judge

NUMBER = {"name": "n", "logicalType": "number"}


def marked(**ends: Any) -> dict[str, Any]:
    return {"customProperties": [{"property": f"anomaly{name}", "value": value} for name, value in ends.items()]}


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({"Below": 0}, Expected(Decimal(0))),
        ({"Below": -1, "Above": 99}, Expected(Decimal(-1), Decimal(99))),
        ({"Above": "1.50"}, Expected(None, Decimal("1.50"))),
        ({}, Expected()),
    ],
)
@pytest.mark.parametrize("kind", ["double", "float", "decimal(9,2)"])
def test_a_range(kind: str, ends: dict[str, Any], expected: Expected) -> None:
    *_, field = parse(NUMBER | {"physicalType": kind} | marked(**ends)).fields
    assert field.expected == expected
    assert bool(field.expected) == bool(ends)


def test_a_number_with_a_decimal_point_keeps_its_digits() -> None:
    *_, field = parse(NUMBER | marked(Below=-0.5)).fields
    assert str(field.expected) == "below -0.5"


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (NUMBER | marked(Below="cold"), "anomalyBelow: expected a number, got 'cold'"),
        (NUMBER | marked(Below=True), "expected a number, got True"),
        (NUMBER | marked(Below="1e999"), "expected a number"),
        (NUMBER | marked(Below=2, Above=1), "every value is an anomaly"),
        ({"name": "n"} | marked(Below=2), "only for numbers, but the type is string"),
        (NUMBER | {"logicalTypeOptions": {"minimum": 0}} | marked(Below=0), "the minimum already rejects"),
        (NUMBER | {"logicalTypeOptions": {"maximum": 5}} | marked(Above=6), "the maximum already rejects"),
        (NUMBER | {"customProperties": [{"property": "anomalybelow", "value": 1}]}, "did you mean anomalyBelow?"),
    ],
)
def test_what_is_rejected(field: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(field)
    assert message in str(caught.value)


def test_an_anomaly_is_data_and_a_range_beside_it_still_rejects() -> None:
    contract = parse(NUMBER | {"logicalTypeOptions": {"minimum": -100}} | marked(Below=0))
    units = units_of(Judge(contract).judge(b'[{"n": -5}, {"n": -500}, {"n": 5}]'))
    assert [(unit["n"], bool(unit["reasons"])) for unit in units] == [(-5.0, False), (None, True), (5.0, False)]


def test_another_range_takes_the_same_records() -> None:
    found = changes(parse(NUMBER | marked(Below=0)), parse(NUMBER | marked(Below=-1, Above=9)))
    assert [change.what for change in found] == ["anomalies below 0 → below -1 and above 9"]
    assert compatibility(found) is Compatibility.FULL
