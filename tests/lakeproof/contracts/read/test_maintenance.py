"""Maintenance options of a contract, and positions of errors."""

import pytest
from tests.lakeproof.contracts.read.test_breaker import CONTRACT

from lakeproof.contracts import Contract, Maintenance, parse_contract
from lakeproof.contracts.diff import Compatibility, changes, compatibility
from lakeproof.errors import UsageError
from lakeproof.settings import MaintenanceSettings


def parse(maintenance: str = "") -> Contract:
    line = f"  - {{property: maintenance, value: {maintenance}}}\n" if maintenance else ""
    return parse_contract(CONTRACT.format(breaker=line).encode(), "things.yaml")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", Maintenance()),
        ("{keep_hours: 24}", Maintenance(keep_hours=24)),
        (
            "{keep_hours: 0.5, file_mib: 64, compact: false, orphan_hours: 48}",
            Maintenance(keep_hours=0.5, file_mib=64, compact=False, orphan_hours=48),
        ),
    ],
)
def test_what_a_contract_says(written: str, expected: Maintenance) -> None:
    assert parse(written).maintenance == expected


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("soon", "maintenance: expected keys and values, got 'soon'."),
        ("{}", "maintenance: expected keys and values, got {}."),
        ("{keep_hours: 0}", "maintenance: keep_hours: expected "),
        ("{keep_hours: true}", "maintenance: keep_hours: expected a number"),
        ("{keep_hours: inf}", "maintenance: keep_hours: expected "),
        ("{orphan_hours: 1}", "maintenance: orphan_hours: expected "),
        ("{file_mib: 1.5}", "maintenance: file_mib: expected "),
        ("{compact: 0}", "maintenance: compact: expected "),
        ("{keep_hour: 2}", "maintenance: unknown key 'keep_hour'."),
    ],
)
def test_a_mistake_is_pointed_at(written: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(written)
    assert "things.yaml:6:" in str(error.value)
    assert says in str(error.value)


def test_a_change_changes_no_record() -> None:
    found = list(changes(parse(), parse("{compact: false}")))
    assert [change.what for change in found] == ["maintenance {} → {compact: false}: same records and dead letters"]
    assert compatibility(found) is Compatibility.FULL


def test_each_key_has_the_limits_of_its_setting() -> None:
    for key, own in Maintenance.model_fields.items():
        limits = [each for each in own.metadata if hasattr(each, "gt") or hasattr(each, "ge") or hasattr(each, "le")]
        assert all(each in MaintenanceSettings.model_fields[key].metadata for each in limits), key
