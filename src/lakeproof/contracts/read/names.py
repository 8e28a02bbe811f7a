"""Names that become the name of a table or of a column."""

import re

from lakeproof.contracts.read.problems import ContractError
from lakeproof.contracts.read.source import Place

RESERVED = ("dedupe", "windows")
"""Names that `consumer run` reads as modes, see :mod:`lakeproof.kafka.modes`: no stream has one of them."""

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*", re.IGNORECASE | re.ASCII)


def is_identifier(name: str) -> bool:
    """Whether a table or a column can have this name."""
    return bool(_IDENTIFIER.fullmatch(name))


def identifier(name: str | None, place: Place, what: str) -> str:
    """Check a name that becomes a table's or a column's."""
    if not name or not is_identifier(name):
        raise ContractError(
            place,
            f"{name!r} is not a valid name for {what}.",
            "Use letters, digits and _, starting with a letter. Names that start with _ are lakeproof's own columns.",
        )
    return name
