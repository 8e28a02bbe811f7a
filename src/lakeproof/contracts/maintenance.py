"""Maintenance options of the tables of one stream or product, which override the settings."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LONGEST_HOURS = 87_600


def _number(value: object) -> object:
    """Refuse booleans, which are numbers in Python."""
    return str(value) if isinstance(value, bool) else value


_Hours = Annotated[float, BeforeValidator(_number)]


class Maintenance(BaseModel):
    """Each field overrides the setting LAKE_MAINTENANCE_… of the same name; None means that the setting applies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    compact: bool | None = Field(None, strict=True)
    keep_hours: _Hours | None = Field(None, gt=0, le=LONGEST_HOURS, allow_inf_nan=False)
    orphan_hours: _Hours | None = Field(None, ge=24, le=LONGEST_HOURS, allow_inf_nan=False)
    file_mib: int | None = Field(None, ge=1, le=4096, strict=True)

    def __str__(self) -> str:
        said = (f"{key}: {str(value).lower()}" for key, value in self.model_dump(exclude_none=True).items())
        return f"{{{', '.join(said)}}}"


AS_SET = Maintenance()
"""No overrides: the settings apply."""
