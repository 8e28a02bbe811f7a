"""What a contract may not ask for."""

from pathlib import Path

import pytest

from lakeproof.contracts import parse_contract
from lakeproof.errors import UsageError

EVENTS = (Path(__file__).parents[3] / "contracts" / "events.yaml").read_bytes()


@pytest.mark.parametrize(
    ("changed", "into", "message"),
    [
        (b"name: product_id", b"name: raw", "the name 'raw' is taken"),
        (b"name: product_id", b"name: Reasons", "the name 'Reasons' is taken"),
        (
            b"logicalType: map\n",
            b"logicalType: map\n        enum: [{value: a}]\n",
            r"events.yaml:\d+: properties: it has an enum",
        ),
    ],
)
def test_refused(changed: bytes, into: bytes, message: str) -> None:
    text = EVENTS.replace(changed, into)
    assert text != EVENTS
    with pytest.raises(UsageError, match=message):
        parse_contract(text, "events.yaml")
