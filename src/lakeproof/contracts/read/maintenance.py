"""Read the custom property ``maintenance``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from open_data_contract_standard.model import CustomProperty

from lakeproof.contracts.maintenance import Maintenance
from lakeproof.contracts.read.custom_properties import MAINTENANCE, custom_values
from lakeproof.documents.problems import ContractError, Problems, located_at, near, validated
from lakeproof.errors import expected

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_EXAMPLE = "Write it like `{keep_hours: 24, file_mib: 64}`."
_KEYS = list(Maintenance.model_fields)


def read_maintenance(customs: Sequence[CustomProperty], problems: Problems) -> Maintenance:
    """Read the maintenance options of a contract; without the property, the settings apply."""
    for _, value, place in custom_values(customs, (), MAINTENANCE):
        if not isinstance(value, Mapping) or not value:
            problems.report(place, f"{MAINTENANCE}: expected keys and values, got {value!r}.", _EXAMPLE)
            continue

        def error_at(error: "ErrorDetails", place: tuple[int | str, ...] = place) -> ContractError:
            key = str(error["loc"][0])
            if error["type"] == "extra_forbidden":
                meant = near(key, _KEYS)
                hint = f"Did you mean {meant}?" if meant else f"Expected one of: {', '.join(_KEYS)}."
                message = f"{MAINTENANCE}: unknown key {key!r}."
                return ContractError((*place, *located_at(error)), message, hint, about_key=True)
            return ContractError((*place, key), f"{MAINTENANCE}: {key}: {expected(error)}", _EXAMPLE)

        return validated(Maintenance, dict(value), problems, error_at) or Maintenance()
    return Maintenance()
