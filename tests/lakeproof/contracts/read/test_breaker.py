"""The breaker of a contract: valid options, and positions of errors."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from lakeproof.contracts import Breaker, BreakerAction, Contract, parse_contract
from lakeproof.contracts.diff import Compatibility, changes, compatibility
from lakeproof.errors import UsageError

CONTRACT = """\
apiVersion: v3.2.0
kind: DataContract
version: 1.0.0
customProperties:
  - {{property: eventTime, value: at}}
{breaker}schema:
  - name: things
    properties:
      - {{name: at, logicalType: timestamp}}
"""
DEFAULT = Breaker(Decimal("0.25"), 200, timedelta(hours=1), BreakerAction.WARN)


def parse(breaker: str = "") -> Contract:
    line = f"  - {{property: breaker, value: {breaker}}}\n" if breaker else ""
    return parse_contract(CONTRACT.format(breaker=line).encode(), "things.yaml")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", DEFAULT),
        ("{action: pause}", replace(DEFAULT, action=BreakerAction.PAUSE)),
        (
            "{share: 0.2, units: 1000, over: 2 hours, action: pause}",
            Breaker(Decimal("0.2"), 1000, timedelta(hours=2), BreakerAction.PAUSE),
        ),
        ("{over: micro-batch, action: warn}", replace(DEFAULT, over=None)),
        ("{share: 1, units: 1}", replace(DEFAULT, share=Decimal(1), units=1)),
        ('{share: "0.05"}', replace(DEFAULT, share=Decimal("0.05"))),
        ("{over: 7 days}", replace(DEFAULT, over=timedelta(days=7))),
    ],
)
def test_what_a_breaker_says(written: str, expected: Breaker) -> None:
    assert parse(written).breaker == expected


@pytest.mark.parametrize(
    ("written", "marked", "says"),
    [
        ("warn", "warn", "breaker: expected keys and values, got 'warn'."),
        ("{}", "{}", "breaker: expected keys and values, got {}."),
        ("[0.2]", "[0.2]", "breaker: expected keys and values, got ['0.2']."),
        ("{share: 0}", "0", "breaker: expected a share from 0.0001 to 1, got 0."),
        ("{share: 20}", "20", "expected a share from 0.0001 to 1, got 20."),
        ("{share: 1.1}", "1.1", "expected a share from 0.0001 to 1, got '1.1'."),
        ("{share: 20%}", "20%", "expected a share from 0.0001 to 1, got '20%'."),
        ("{share: nan}", "nan", "expected a share from 0.0001 to 1, got 'nan'."),
        ("{share: 1e-99999999}", "1e-99999999", "expected a share from 0.0001 to 1"),
        ("{share: true}", "true", "expected a share from 0.0001 to 1, got True."),
        ("{units: 0}", "0", "breaker: expected a whole number of units, 1 or more, got 0."),
        ("{units: 1.5}", "1.5", "expected a whole number of units, 1 or more, got '1.5'."),
        ("{units: true}", "true", "expected a whole number of units, 1 or more, got True."),
        ("{over: 1h}", "1h", "breaker: expected a duration like 7 days, 12 hours or 90 minutes, or micro-batch"),
        ("{over: 8 days}", "8 days", "breaker: 8 days is more than 7 days."),
        ("{action: stop}", "stop", "unknown breaker action 'stop'."),
        ("{action: null}", "null", "unknown breaker action None."),
        ("{unit: 5}", "unit", "breaker: unknown key 'unit'."),
        ("{when: 5}", "when", "breaker: unknown key 'when'."),
    ],
)
def test_a_mistake_is_marked(written: str, marked: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(written)
    message, shown, carets, hint = str(caught.value).splitlines()
    assert says in message
    assert message.startswith("things.yaml:6:")
    under = shown[carets.index("^") : carets.rindex("^") + 1]
    assert under == marked
    assert hint.strip()


def test_every_mistake_is_reported() -> None:
    with pytest.raises(UsageError) as caught:
        parse("{share: 7, units: none}")
    assert "(1 of 2 errors)" in caught.value.message
    assert "share from" in str(caught.value)
    assert "number of units" in str(caught.value)


@pytest.mark.parametrize("name", ["Breaker", "braker"])
def test_a_name_that_is_nearly_ours_is_refused(name: str) -> None:
    text = CONTRACT.format(breaker=f"  - {{property: {name}, value: {{action: pause}}}}\n")
    with pytest.raises(UsageError, match="did you mean breaker"):
        parse_contract(text.encode(), "things.yaml")


def test_it_belongs_to_the_contract_not_to_a_field() -> None:
    text = CONTRACT.format(breaker="").replace(
        "logicalType: timestamp", "logicalType: timestamp, customProperties: [{property: breaker, value: 1}]"
    )
    with pytest.raises(UsageError, match="the custom property breaker has no effect here"):
        parse_contract(text.encode(), "things.yaml")


def test_two_of_them_are_refused() -> None:
    twice = "  - {property: breaker, value: {action: pause}}\n" * 2
    with pytest.raises(UsageError, match="duplicate custom property breaker"):
        parse_contract(CONTRACT.format(breaker=twice).encode(), "things.yaml")


def test_a_change_is_listed_and_compatible() -> None:
    found = changes(parse(), parse("{share: 0.1, over: micro-batch, action: pause}"))
    assert [change.what for change in found] == [
        "breaker warn at 0.25 of 200 units of a micro-batch or 1 hour → pause at 0.1 of 200 units of a micro-batch: "
        "same records and dead letters"
    ]
    assert compatibility(found) is Compatibility.FULL
    assert changes(parse(), parse("{action: warn}")) == ()


@pytest.mark.parametrize(
    ("bad", "units", "trips"),
    [
        (1, 5, True),  # at the floor, and at the share
        (1, 4, False),  # below the floor
        (4, 4, False),
        (1, 6, False),  # below the share
        (2, 10, True),
        (199_999, 1_000_000, False),
        (200_000, 1_000_000, True),
    ],
)
def test_when_it_trips(bad: int, units: int, trips: bool) -> None:
    assert Breaker(Decimal("0.2"), 5).trips(bad, units) is trips
