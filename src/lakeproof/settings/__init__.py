"""Settings from environment variables. Only this package reads the environment.

Variables begin with ``LAKE_``; S3 uses the names of the AWS tools. A ``.env`` file in the working directory has
defaults, the environment wins. Each setting is defined once, by a field: its variable is the alias, its help the
description.
"""

from lakeproof.settings.lake import Limits, S3Settings
from lakeproof.settings.load import load_settings, settings_of
from lakeproof.settings.model import CLICKSTREAM, GROUPS, VARIABLES, Settings
from lakeproof.settings.modes import WindowsSettings
from lakeproof.settings.operations import MaintenanceSettings
from lakeproof.settings.secrets import export_secrets, secrets_of
from lakeproof.settings.sources import CollectorSettings, KafkaSettings, RegistrySettings, TopicSettings

__all__ = [
    "CLICKSTREAM",
    "GROUPS",
    "VARIABLES",
    "CollectorSettings",
    "KafkaSettings",
    "Limits",
    "MaintenanceSettings",
    "RegistrySettings",
    "S3Settings",
    "Settings",
    "TopicSettings",
    "WindowsSettings",
    "export_secrets",
    "load_settings",
    "secrets_of",
    "settings_of",
]
