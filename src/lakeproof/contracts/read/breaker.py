"""Read the custom property ``breaker``."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from open_data_contract_standard.model import CustomProperty

from lakeproof.contracts.duration import FORM, FORM_HINT, duration_text, read_duration
from lakeproof.contracts.model import DEFAULT_BREAKER, Breaker, BreakerAction
from lakeproof.contracts.read.custom_properties import BREAKER, custom_values, one_of
from lakeproof.documents.problems import ContractError, Problems, near
from lakeproof.documents.source import YamlPath

MICRO_BATCH = "micro-batch"
MAX_OVER = timedelta(days=7)  # the ledger of this time is read when a consumer starts
_MAX_UNITS = 10**12
_LEAST_SHARE = Decimal("0.0001")
_EXAMPLE = "Write it like `{share: 0.2, units: 1000, over: 1 hour, action: pause}`."


def read_breaker(customs: Sequence[CustomProperty], problems: Problems) -> Breaker:
    """Read the breaker of a contract: the default one if it has none."""
    for _, value, place in custom_values(customs, (), BREAKER):
        if not isinstance(value, Mapping) or not value:
            message = f"{BREAKER}: expected keys and values, got {value!r}."
            problems.report(place, message, _EXAMPLE)
            continue
        read: dict[str, Any] = {}
        for key, given in value.items():
            with problems.caught():
                read[str(key)] = _reader(str(key), place)(given, (*place, str(key)))
        if not problems.found:
            return Breaker(**read)
    return DEFAULT_BREAKER


def _reader(key: str, place: YamlPath) -> Callable[[object, YamlPath], object]:
    if reader := _READERS.get(key):
        return reader
    meant = near(key, list(_READERS))
    hint = f"Did you mean {meant}?" if meant else f"Expected one of: {', '.join(_READERS)}."
    raise ContractError((*place, key), f"{BREAKER}: unknown key {key!r}.", hint, about_key=True)


def _share(value: object, place: YamlPath) -> Decimal:
    share = _decimal(value)
    if share is None or not _LEAST_SHARE <= share <= 1:
        message = f"{BREAKER}: expected a share from {_LEAST_SHARE} to 1, got {value!r}."
        raise ContractError(place, message, "Write the share of bad units from which on it trips, like 0.2 for 20 %.")
    return share


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | str):  # decimal numbers are text here
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _units(value: object, place: YamlPath) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_UNITS:
        message = f"{BREAKER}: expected a whole number of units, 1 or more, got {value!r}."
        raise ContractError(place, message, "It never trips among fewer units than this.")
    return value


def _over(value: object, place: YamlPath) -> timedelta | None:
    if value == MICRO_BATCH:
        return None
    over = read_duration(value)
    if over is None:
        raise ContractError(place, f"{BREAKER}: expected {FORM}, or {MICRO_BATCH}, got {value!r}.", FORM_HINT)
    if over > MAX_OVER:
        message = f"{BREAKER}: {duration_text(over)} is more than {duration_text(MAX_OVER)}."
        raise ContractError(place, message, "Use a shorter time.")
    return over


def _action(value: object, place: YamlPath) -> BreakerAction:
    return one_of(BreakerAction, f"{BREAKER} action", value, place)


_READERS: dict[str, Callable[[object, YamlPath], object]] = {
    "share": _share,
    "units": _units,
    "over": _over,
    "action": _action,
}
