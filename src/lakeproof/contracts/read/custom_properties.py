"""Names of lakeproof's custom properties in a contract.

Other tools have custom properties, too, so unknown names are ignored unless they look like a misspelled name of ours.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from open_data_contract_standard.model import CustomProperty

from lakeproof.documents.problems import ContractError, Problems
from lakeproof.documents.source import YamlPath

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)

EVENT_TIME = "eventTime"
DRIFT_POLICY = "driftPolicy"
SILVER_HORIZON = "silverHorizon"
SILVER_STRATEGY = "silverStrategy"
BREAKER = "breaker"
RETENTION = "retention"
MAINTENANCE = "maintenance"
LANDING = "landing"

DERIVED = "derived"
DROPPED = "dropped"
RENAMED_FROM = "renamedFrom"

ANOMALY_BELOW = "anomalyBelow"
ANOMALY_ABOVE = "anomalyAbove"

_OF_FIELDS = (DERIVED, DROPPED, RENAMED_FROM, ANOMALY_BELOW, ANOMALY_ABOVE)
_OF_CONTRACTS = (EVENT_TIME, DRIFT_POLICY, SILVER_HORIZON, SILVER_STRATEGY, BREAKER, RETENTION, MAINTENANCE, LANDING)
_OURS = {name.lower(): name for name in (*_OF_CONTRACTS, *_OF_FIELDS)}
_KEY = "customProperties"
_LIKENESS = 0.8


def custom_values(
    customs: Sequence[CustomProperty] | None, place: YamlPath, *names: str
) -> list[tuple[str, Any, YamlPath]]:
    """Return name, value and place of each custom property with one of the names; `place` is where the part is."""
    return [
        (custom.property, custom.value, (*place, _KEY, index, "value"))
        for index, custom in enumerate(customs or ())
        if custom.property in names
    ]


def one_of(choices: type[ChoiceT], name: str, value: object, place: YamlPath) -> ChoiceT:
    """Read the value of a custom property that is one of several names."""
    if value not in list(choices):
        raise ContractError(place, f"unknown {name} {value!r}.", f"Expected one of: {', '.join(choices)}.")
    return choices(str(value))


def check_names(document: Any, problems: Problems) -> None:
    """Report custom properties that are nearly ours, misplaced or duplicate.

    A name with a namespace (``acme.driftPolicy``, ``acme:driftPolicy``) belongs to another tool.
    """
    seen = set()
    for place, name in _names(document, ()):
        meant = _meant(name)
        if meant is None:
            continue
        holder = place[:-3]
        if name != meant:
            message = f"unknown custom property {name!r}; did you mean {meant}?"
            hint = f"Use {meant}. If the property belongs to another tool, add a namespace, like acme.{name}."
            problems.removed.append((*holder, _KEY, name))
        elif name in _OF_FIELDS and holder[-2:-1] != ("properties",):
            message = f"the custom property {name} has no effect here."
            hint = f"Move it to the {_KEY} of a field."
        elif name not in _OF_FIELDS and holder:
            message = f"the custom property {name} has no effect here."
            hint = f"Move it to {_KEY} at the top of the contract."
        elif (holder, name) in seen:
            message, hint = f"duplicate custom property {name}.", "Remove one of them."
        else:
            seen.add((holder, name))
            continue
        problems.report(place, message, hint)


def _meant(name: str) -> str | None:
    """Return our property that a name equals or nearly equals; None without a match."""
    if any(mark in name for mark in ".:/"):
        return None
    plain = name.lower().replace("_", "").replace("-", "").replace(" ", "")
    likely = get_close_matches(plain, _OURS, n=1, cutoff=_LIKENESS)
    return _OURS[likely[0]] if likely else None


def _names(part: Any, place: YamlPath) -> Iterator[tuple[YamlPath, str]]:
    """Yield the place and name of every custom property of a document."""
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
