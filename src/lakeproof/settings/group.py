"""The base of all groups of settings: configuration, defaults below LAKE_HOME, and pickling without secrets."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo

from lakeproof.addresses import without_password
from lakeproof.errors import UsageError
from lakeproof.settings.checks import Folder, refusal


class SettingsGroup(BaseModel):
    """A group of settings. Pickles contain no secrets: the process that loads one takes them from its environment."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        validate_by_alias=True,
        validate_by_name=True,
        allow_inf_nan=False,
    )
    secrets: ClassVar[tuple[str, ...]] = ()  # fields with secrets, and with names that belong to them

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        public = {name: _public(getattr(self, name)) for name in self.secrets}
        own = self.secrets if self.holds_secrets() else ()
        return state | {"__dict__": state["__dict__"] | public, "from environment": own}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        for name in state["from environment"]:
            field = type(self).model_fields[name]
            if value := os.environ.get(field.alias or ""):
                self.__dict__[name] = SecretStr(value) if "SecretStr" in repr(field.annotation) else value

    @classmethod
    def set_with(cls, other: str, value: Any, info: ValidationInfo, *, both: bool = False) -> Any:
        """Refuse a value of a field without one of the field `other`, or with `both` either of them alone."""
        variable = cls.model_fields[other].alias
        # A refused value is not in the data, and only its own error is reported.
        known = info.data.get(other, value)
        with refusal():
            if value is not None and known is None:
                hint = "Set that as well, or leave it unset."
                raise UsageError(f"it is for {variable}, which is not set.", hint)
            if both and value is None and known is not None:
                raise UsageError(f"it is not set, but {variable} is.", "Set both, or leave both unset.")
        return value

    def holds_secrets(self) -> bool:
        """Whether a secret is set."""
        return any(getattr(self, name) != _public(getattr(self, name)) for name in self.secrets)


def _public(value: object) -> str | None:
    """Return the public part of a secret setting: an address without its password, otherwise None."""
    if isinstance(value, SecretStr) or value is None:
        return None
    return without_password(str(value)).replace(":***@", "@")  # libpq then looks at PGPASSWORD and .pgpass


class InHome(SettingsGroup):
    """Settings with defaults below the folder LAKE_HOME."""

    home: Folder = Field(Path("target/lake"), alias="LAKE_HOME", description="folder of the embedded lake")


def with_prefix(prefix: str) -> Callable[[str], str]:
    """Name the variables of a model after its fields."""
    return lambda name: f"{prefix}{name.upper()}"


def in_home(name: str) -> Callable[[dict[str, Any]], Any]:
    """Default value below the folder LAKE_HOME."""
    return lambda fields: fields["home"] / name
