"""Descriptions of the settings for `lakeproof settings`, ``--help`` and the guide, all from the model."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from platformdirs import user_cache_path
from pydantic.fields import FieldInfo
from rich.markup import escape

from lakeproof.settings import GROUPS


@dataclass(frozen=True)
class Setting:
    """Description of a setting."""

    group: str
    variable: str
    field: str  # dotted path in :class:`lakeproof.settings.Settings`
    default: str  # empty for none
    meaning: str


def settings_in_words() -> list[Setting]:
    """Return all settings, grouped by group."""
    found: dict[str, Setting] = {}
    for place, group in GROUPS.items():
        for name, field in group.model_fields.items():
            if variable := field.alias:  # LAKE_HOME is a field of several models
                title, path = str(group.model_config["title"]), f"{place}.{name}".lstrip(".")
                setting = Setting(title, variable, path, _default(field), field.description or "")
                found.setdefault(variable, setting)
    return list(found.values())


def by_group() -> Iterator[tuple[str, list[Setting]]]:
    """Yield all settings by the title of their group."""
    for title, settings in groupby(settings_in_words(), lambda setting: setting.group):
        yield title, list(settings)


def as_markdown() -> str:
    """Return the table of settings for the guide."""
    lines = ["| variable | default | what |", "|---|---|---|"]
    for group, settings in by_group():
        lines.append(f"| **{group}** | | |")
        for setting in settings:
            default = f"`{setting.default}`" if setting.default else "none"
            lines.append(f"| `{setting.variable}` | {default} | {setting.meaning} |")
    return "".join(f"{line}\n" for line in lines)


def epilog(variables: Iterable[str] | None = None) -> str:
    """Return the text below the options of a program's help: the given settings, or all settings by group."""
    if variables is None:
        lines = []
        for group, settings in by_group():
            lines += [f"[bold]{group}[/]", *map(_line, settings)]
    else:
        known = {setting.variable: setting for setting in settings_in_words()}
        lines = [
            "Environment variables, or lines of .env; `lakeproof settings --help` lists all:",
            *(_line(known[name]) for name in variables),
        ]
    return "\n".join(lines)


def _line(setting: Setting) -> str:
    return escape(f"  {setting.variable}: {setting.meaning}")


def _default(field: FieldInfo) -> str:
    home = {"home": Path("$LAKE_HOME")}
    default = field.get_default(call_default_factory=True, validated_data=home)
    # Independent of the machine, since the guide contains the default.
    cache = str(user_cache_path())
    return "" if default is None else str(default).replace(cache, "~/.cache")
