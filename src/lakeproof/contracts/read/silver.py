"""Read the custom properties ``silverHorizon`` and ``silverStrategy``."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from open_data_contract_standard.model import CustomProperty

from lakeproof.contracts.duration import FORM, FORM_HINT, UNBOUNDED, read_duration
from lakeproof.contracts.model import Field, Silver, SilverStrategy
from lakeproof.contracts.read.custom_properties import SILVER_HORIZON, SILVER_STRATEGY, custom_values, one_of
from lakeproof.documents.problems import ContractError, Problems
from lakeproof.documents.source import YamlPath

_HORIZON = timedelta(days=7)


def read_silver(
    customs: Sequence[CustomProperty],
    primary_key: tuple[str, ...],
    fields: tuple[Field, ...],
    place_of: Callable[[str], YamlPath],
    problems: Problems,
) -> Silver | None:
    """Read the silver options of a contract; None if it cannot have silver."""
    horizon: timedelta | None = _HORIZON
    strategy = SilverStrategy.MERGE
    asked = ""
    for asked, value, place in custom_values(customs, (), SILVER_HORIZON, SILVER_STRATEGY):
        with problems.caught():
            if asked == SILVER_HORIZON:
                horizon = _horizon(value, place)
            else:
                strategy = one_of(SilverStrategy, SILVER_STRATEGY, value, place)
        if not primary_key and not problems.broken:
            problems.report(
                place[:-1],
                f"{asked} requires a primary key, but no property has primaryKey: true.",
                f"Add it to the fields that identify a record, or remove {asked}.",
            )
    optional = [field.name for field in fields if field.name in primary_key and not field.required]
    if asked and optional:
        problems.report(
            (*place_of(optional[0]), "primaryKey"),
            f"{asked} requires that each field of the primary key is required, but this one is optional.",
            f"Add `required: true`, or remove {asked}.",
            about_key=True,
        )
    return Silver(horizon, strategy) if primary_key and not optional else None


def _horizon(value: object, place: YamlPath) -> timedelta | None:
    if value == UNBOUNDED:
        return None
    horizon = read_duration(value)
    if horizon is None:
        raise ContractError(place, f"{SILVER_HORIZON}: expected {FORM}, or {UNBOUNDED}, got {value!r}.", FORM_HINT)
    return horizon
