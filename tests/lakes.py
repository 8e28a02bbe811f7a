"""The same lake with other settings."""

from typing import Any

from lakeproof.settings import CONCERNS, VARIABLES, Settings, settings_of


def variables(settings: Settings) -> dict[str, Any]:
    """What was set, by the names of its variables."""
    parts = [getattr(settings, name) if name else settings for name in CONCERNS]
    return {
        field.alias: getattr(part, name)
        for part in parts
        for name, field in type(part).model_fields.items()
        if field.alias and name in part.model_fields_set
    }


def changed(settings: Settings, **changes: Any) -> Settings:
    """Settings with other values of variables; None unsets one. What follows from another one follows from the new."""
    assert changes.keys() <= VARIABLES
    return settings_of(variables(settings) | changes)
