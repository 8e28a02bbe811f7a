"""Secrets for child processes: pickled settings contain none."""

import os

from pydantic import SecretStr

from lakeproof.settings.model import GROUPS, Settings


def secrets_of(settings: Settings) -> dict[str, str | None]:
    """Return variables that a process needs besides pickled settings, see :class:`SettingsGroup`; None means unset."""
    found: dict[str, str | None] = {}
    for name in filter(None, GROUPS):
        group = getattr(settings, name)
        for field in group.secrets if group.holds_secrets() else ():
            value, variable = getattr(group, field), str(type(group).model_fields[field].alias)
            found[variable] = value.get_secret_value() if isinstance(value, SecretStr) else value
    return found


def export_secrets(settings: Settings) -> None:
    """Export secrets to the environment of child processes."""
    for variable, value in secrets_of(settings).items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value
