"""Options of `consumer run` for the fields of the modes' settings, made from the model that describes them."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from lakeproof.kafka.modes import ModeName, fields_of

_PANEL = "Fields of dedupe and windows, see docs/modes.md"
_SHARED = {"topic"}  # an option of streams, too


def with_mode_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which receives the given ones in `fields`, by name of the field."""
    options = _options()

    @functools.wraps(command)
    def with_fields(**values: Any) -> None:
        given = {name: value for name in options if (value := values.pop(name)) is not None}
        command(**values, fields=given)

    signature = inspect.signature(command)
    own = [parameter for name, parameter in signature.parameters.items() if name != "fields"]
    with_fields.__signature__ = signature.replace(parameters=[*own, *options.values()])  # type: ignore[attr-defined]
    return with_fields


def option_of(field: str) -> str:
    """Return the name of a field's option."""
    return f"--{field.replace('_', '-')}"


def _options() -> dict[str, inspect.Parameter]:
    """Return parameters of a command by name of the field."""
    found: dict[str, inspect.Parameter] = {}
    for mode in ModeName:
        for name, field in fields_of(mode).items():
            if name in found or name in _SHARED:
                continue
            only = "" if all(name in fields_of(other) for other in ModeName) else f" (only {mode})"
            option = typer.Option(
                option_of(name), metavar="TEXT", help=f"{field.description}{only}", rich_help_panel=_PANEL
            )
            found[name] = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
            )
    return found
