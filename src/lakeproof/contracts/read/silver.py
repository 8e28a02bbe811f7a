"""Read the custom properties ``silverHorizon`` and ``silverStrategy``."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from open_data_contract_standard.model import CustomProperty

from lakeproof.contracts.duration import FORM, FORM_HINT, UNBOUNDED, read_duration
from lakeproof.contracts.model import Field, Silver, SilverStrategy
from lakeproof.contracts.read.custom_properties import SILVER_HORIZON, SILVER_STRATEGY
from lakeproof.contracts.read.problems import ContractError, Problems
from lakeproof.contracts.read.source import YamlPath

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
    for index, custom in enumerate(customs):
        if custom.property not in (SILVER_HORIZON, SILVER_STRATEGY):
            continue
        asked = custom.property
        value: YamlPath = ("customProperties", index, "value")
        with problems.caught():
            if asked == SILVER_HORIZON:
                horizon = _horizon(custom.value, value)
            else:
                strategy = _strategy(custom.value, value)
        if not primary_key and not problems.broken:
            problems.add(
                ContractError(
                    ("customProperties", index),
                    f"{asked} requires a primary key, but no property has primaryKey: true.",
                    f"Add it to the fields that identify a record, or remove {asked}.",
                )
            )
    optional = [field.name for field in fields if field.name in primary_key and not field.required]
    if asked and optional:
        problems.add(
            ContractError(
                (*place_of(optional[0]), "primaryKey"),
                f"{asked} requires that each field of the primary key is required, but this one is optional.",
                f"Add `required: true`, or remove {asked}.",
                about_key=True,
            )
        )
    return Silver(horizon, strategy) if primary_key and not optional else None


def _horizon(value: object, place: YamlPath) -> timedelta | None:
    if value == UNBOUNDED:
        return None
    horizon = read_duration(value)
    if horizon is None:
        raise ContractError(place, f"{SILVER_HORIZON}: expected {FORM}, or {UNBOUNDED}, got {value!r}.", FORM_HINT)
    return horizon


def _strategy(value: object, place: YamlPath) -> SilverStrategy:
    if value not in list(SilverStrategy):
        raise ContractError(
            place, f"unknown {SILVER_STRATEGY} {value!r}.", f"Expected one of: {', '.join(SilverStrategy)}."
        )
    return SilverStrategy(str(value))
