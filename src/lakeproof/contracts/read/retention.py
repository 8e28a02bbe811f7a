"""Read the custom property ``retention``."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from open_data_contract_standard.model import CustomProperty

from lakeproof.contracts.duration import FORM, FORM_HINT, read_duration
from lakeproof.contracts.model import Retention
from lakeproof.contracts.read.custom_properties import RETENTION, custom_values
from lakeproof.contracts.read.problems import ContractError, Problems, near
from lakeproof.contracts.read.source import YamlPath

_LANDED, _ARCHIVE = "landed", "archive"
_EXAMPLE = "Write it like `{landed: 30 days}`, or `{landed: 30 days, archive: s3://BUCKET/PREFIX}`."


def read_retention(customs: Sequence[CustomProperty], problems: Problems) -> Retention | None:
    """Read the retention of a contract; None if it has none."""
    for _, value, place in custom_values(customs, (), RETENTION):
        with problems.caught():
            return _retention(value, place)
    return None


def _retention(value: object, place: YamlPath) -> Retention:
    if not isinstance(value, Mapping) or _LANDED not in value:
        raise ContractError(place, f"{RETENTION}: expected the key {_LANDED}, got {value!r}.", _EXAMPLE)
    if unknown := [str(key) for key in value if key not in (_LANDED, _ARCHIVE)]:
        meant = near(unknown[0], [_LANDED, _ARCHIVE])
        hint = f"Did you mean {meant}?" if meant else _EXAMPLE
        raise ContractError((*place, unknown[0]), f"{RETENTION}: unknown key {unknown[0]!r}.", hint, about_key=True)
    return Retention(_landed(value[_LANDED], (*place, _LANDED)), _archive(value.get(_ARCHIVE), (*place, _ARCHIVE)))


def _landed(value: object, place: YamlPath) -> timedelta:
    landed = read_duration(value)
    if landed is None:
        raise ContractError(place, f"{RETENTION}: expected {FORM}, got {value!r}.", FORM_HINT)
    return landed


def _archive(value: object, place: YamlPath) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise ContractError(place, f"{RETENTION}: expected a folder or an address, got {value!r}.", _EXAMPLE)
    return value
