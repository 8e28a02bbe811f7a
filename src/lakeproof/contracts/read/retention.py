"""Read the custom property ``retention``."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from open_data_contract_standard.model import CustomProperty

from lakeproof.contracts.duration import FORM, FORM_HINT, read_duration
from lakeproof.contracts.model import Removable, Retention
from lakeproof.contracts.read.custom_properties import RETENTION, custom_values
from lakeproof.documents.problems import ContractError, Problems, near
from lakeproof.documents.source import YamlPath

_ARCHIVE = "archive"
_EXAMPLE = (
    "Write it like `{landed: 30 days}`, or `{landed: 30 days, archive: s3://BUCKET/PREFIX, dead_letters: 90 days}`."
)


def read_retention(customs: Sequence[CustomProperty], problems: Problems) -> Retention | None:
    """Read the retention of a contract; None if it has none."""
    for _, value, place in custom_values(customs, (), RETENTION):
        with problems.caught():
            return _retention(value, place)
    return None


def _retention(value: object, place: YamlPath) -> Retention:
    known = [*Removable, _ARCHIVE]
    if not isinstance(value, Mapping):
        raise ContractError(place, f"{RETENTION}: expected some of {', '.join(known)}, got {value!r}.", _EXAMPLE)
    if unknown := [str(key) for key in value if key not in known]:
        meant = near(unknown[0], known)
        hint = f"Did you mean {meant}?" if meant else _EXAMPLE
        raise ContractError((*place, unknown[0]), f"{RETENTION}: unknown key {unknown[0]!r}.", hint, about_key=True)
    ages = {str(name): _age(value[name], (*place, name)) for name in Removable if name in value}
    if not ages or (_ARCHIVE in value and Removable.LANDED not in ages):
        what = "the key landed beside archive" if _ARCHIVE in value else f"some of {', '.join(Removable)}"
        raise ContractError(place, f"{RETENTION}: expected {what}, got {value!r}.", _EXAMPLE)
    return Retention(archive=_archive(value.get(_ARCHIVE), (*place, _ARCHIVE)), **ages)


def _age(value: object, place: YamlPath) -> timedelta:
    age = read_duration(value)
    if age is None:
        raise ContractError(place, f"{RETENTION}: expected {FORM}, got {value!r}.", FORM_HINT)
    return age


def _archive(value: object, place: YamlPath) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise ContractError(place, f"{RETENTION}: expected a folder or an address, got {value!r}.", _EXAMPLE)
    return value
