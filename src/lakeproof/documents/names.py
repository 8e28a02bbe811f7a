"""Names of tables and columns."""

import re

from lakeproof.documents.problems import ContractError
from lakeproof.documents.source import YamlPath

RESERVED = ("dedupe", "windows")  # names of modes in `consumer run`, which streams cannot have

OTHER_TABLES = ("_attempts", "_removals", "_silver", "_conflicts", "_late")
"""Suffixes of a stream's other tables: each follows the name of the stream."""

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*", re.IGNORECASE | re.ASCII)


def is_identifier(name: str) -> bool:
    """Whether a name is valid for a table or column."""
    return bool(_IDENTIFIER.fullmatch(name))


def identifier(name: str | None, place: YamlPath, what: str) -> str:
    """Check the name of a table or column."""
    if not name or not is_identifier(name):
        raise ContractError(
            place,
            f"{name!r} is not a valid name for {what}.",
            "Use letters, digits and _, starting with a letter. Names that start with _ are lakeproof's own columns.",
        )
    return name
