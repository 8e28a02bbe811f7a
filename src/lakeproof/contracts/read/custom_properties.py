"""The custom properties of a contract: which are ours, and which only look so.

The standard leaves their names to whoever writes them, and other tools have theirs. So a name that is not ours is left
alone, unless it is nearly one of ours: it would be a typing error that nobody notices.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from lakeproof.contracts.constraints import ContractError
from lakeproof.contracts.read.source import Place

EVENT_TIME = "eventTime"
DRIFT_POLICY = "driftPolicy"
SILVER_HORIZON = "silverHorizon"
SILVER_STRATEGY = "silverStrategy"

_OURS = {name.lower(): name for name in (EVENT_TIME, DRIFT_POLICY, SILVER_HORIZON, SILVER_STRATEGY)}
_KEY = "customProperties"
_LIKENESS = 0.8


def check_names(document: Any) -> None:
    """Refuse what would be taken for one of our custom properties, and is none.

    A name with a namespace (``acme.driftPolicy``, ``acme:driftPolicy``) is another tool's.

    Raises
    ------
    ContractError
        A name is nearly one of ours, or one of ours is not at the contract's top, or is duplicated.
    """
    seen = set()
    for place, name in _names(document, ()):
        meant = _meant(name)
        if meant is None:
            continue
        if name != meant:
            raise ContractError(
                place,
                f"unknown custom property {name!r}; did you mean {meant}?",
                f"Use {meant}. If the property belongs to another tool, add a namespace, like acme.{name}.",
            )
        if place[0] != _KEY:
            raise ContractError(
                place,
                f"the custom property {name} has no effect here.",
                f"Move it to {_KEY} at the top of the contract.",
            )
        if name in seen:
            raise ContractError(place, f"duplicate custom property {name}.", "Remove one of them.")
        seen.add(name)


def _meant(name: str) -> str | None:
    """Which of ours a name is, or nearly is."""
    if any(mark in name for mark in ".:/"):
        return None
    plain = name.lower().replace("_", "").replace("-", "").replace(" ", "")
    likely = get_close_matches(plain, _OURS, n=1, cutoff=_LIKENESS)
    return _OURS[likely[0]] if likely else None


def _names(part: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Every custom property of a document, with its place."""
    if isinstance(part, dict):
        for index, custom in enumerate(part.get(_KEY) or ()):
            if isinstance(custom, dict) and isinstance(custom.get("property"), str):
                yield (*place, _KEY, index, "property"), custom["property"]
        for key, value in part.items():
            if key != _KEY:
                yield from _names(value, (*place, key))
    elif isinstance(part, list):
        for index, value in enumerate(part):
            yield from _names(value, (*place, index))
