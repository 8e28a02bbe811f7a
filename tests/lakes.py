"""The same lake with other settings."""

from typing import Any

from lakeproof.settings import Settings


def changed(settings: Settings, **changes: Any) -> Settings:
    """Settings with changes. A copy of the model would keep what was derived from the old values."""
    return Settings(_env_file=None, **(settings.model_dump(exclude_unset=True) | {"s3": settings.s3} | changes))
