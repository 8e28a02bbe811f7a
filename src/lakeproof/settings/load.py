"""Settings from the environment and ``.env``, with errors that name the variable."""

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from lakeproof.errors import UsageError, expected
from lakeproof.settings.model import GROUPS, VARIABLES, Settings

_PREFIX = "LAKE_"
_S3_PREFIX = "AWS_"
_DEFAULTS = ".env"
_OTHERS = {"LAKE_DEMO"}  # names that are used by scripts only


def load_settings(defaults: Mapping[str, str] | None = None, options: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment and ``.env``."""
    try:
        _refuse_other_encodings(os.environ)
        _refuse_unknown(os.environ, "the environment")
        in_file = _not_empty(dotenv_values(_DEFAULTS, encoding="utf-8"))
        _refuse_unknown(in_file, _DEFAULTS)
        return settings_of({**(defaults or {}), **in_file, **_not_empty(os.environ), **(options or {})})
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{Path(_DEFAULTS).absolute()} is not UTF-8: {error.reason} at byte {error.start}.",
            "Save it as UTF-8, or remove it.",
        ) from None


def settings_of(variables: Mapping[str, Any]) -> Settings:
    """Make settings from variables. None means unset; unknown names are ignored."""

    def own(group: type[BaseModel]) -> dict[str, Any]:
        names = [field.alias for field in group.model_fields.values() if field.alias]
        return {name: variables[name] for name in names if variables.get(name) is not None}

    fields = {name: own(group) for name, group in GROUPS.items()}
    try:
        return Settings.model_validate(fields.pop("") | fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = _field(first["loc"])
        if field and SecretStr.__name__ in repr(field.annotation):
            first["input"] = "***"
        message, hint = expected(first), "Correct it in the environment or in .env."
        if first["type"] == "value_error":
            message, hint = first["ctx"]["error"].args
        raise UsageError(f"{_variable(first['loc'])}: {message}", hint) from None


def _field(location: tuple[int | str, ...]) -> FieldInfo | None:
    """Return the field that pydantic refused: by its variable, or for defaults by its name; None if unknown."""
    *group, name = map(str, location)
    fields = GROUPS["".join(group)].model_fields
    return fields.get(name) or next((field for field in fields.values() if field.alias == name), None)


def _variable(location: tuple[int | str, ...]) -> str:
    """Return the variable that pydantic refused."""
    field = _field(location)
    return field.alias if field and field.alias else str(location[-1])


def _not_empty(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return variables by upper-case name, without empty ones."""
    return {name.upper(): value for name, value in variables.items() if value != ""}


def _refuse_unknown(names: Iterable[str], where: str) -> None:
    """Refuse unknown names with our prefix, which would be ignored silently."""
    known = {name.removeprefix(_PREFIX) for name in VARIABLES if name.startswith(_PREFIX)}
    for name in map(str.upper, names):
        own = name.removeprefix(_PREFIX)
        if name == own or own in known or name in _OTHERS:
            continue
        likely = get_close_matches(own, known, n=1)
        hint = f"Did you mean {_PREFIX}{likely[0]}?" if likely else "`lakeproof settings` lists all settings."
        if own.startswith("S3"):
            hint = "S3 is reached by AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION."
        raise UsageError(f"{name} in {where} is not a setting.", hint)


def _refuse_other_encodings(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        if name.upper().startswith((_PREFIX, _S3_PREFIX)):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise UsageError(f"{name} is not UTF-8: {os.fsencode(value)!r}.", "Write it in UTF-8.") from None
