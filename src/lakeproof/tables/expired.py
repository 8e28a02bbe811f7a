"""The account of rows that retention has removed from a table: a property set by the commits that remove them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from lakeproof.tables.names import EXPIRED


@dataclass(frozen=True)
class Expired:
    """The rows that retention has removed from a table so far."""

    before: int = 0
    """All removed rows are from micro-batches with lower numbers."""
    rows: int = 0
    hash: int = 0
    """Sum of the hashes of the rows, as in a ledger."""

    def as_text(self) -> str:
        """Format the value of the property."""
        return json.dumps(asdict(self))


def expired_of(properties: Mapping[str, str]) -> Expired:
    """Read the account from the properties of a table."""
    text = properties.get(EXPIRED)
    return Expired(**json.loads(text)) if text else Expired()
