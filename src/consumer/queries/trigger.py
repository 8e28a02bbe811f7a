"""The trigger of a query: when it looks for new data."""

import re
from dataclasses import dataclass

from lakeproof.errors import UsageError

_DURATION = re.compile(r"(\d+(?:\.\d+)?) (millisecond|second|minute|hour)s?")
_SECONDS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}


@dataclass(frozen=True)
class Trigger:
    """When a query looks for new data."""

    available_now: bool = False  # take what has landed by now and end, instead of waiting for more
    every: str = "1 second"  # time between two looks, as Spark writes it: ``5 seconds``

    def __post_init__(self) -> None:
        if not _DURATION.fullmatch(self.every):
            raise UsageError(
                f"--trigger: expected a duration, got {self.every!r}.",
                'Use a value like "5 seconds" or "500 milliseconds".',
            )

    @property
    def seconds(self) -> float:
        """The interval in seconds."""
        number, unit = self.every.split()
        return float(number) * _SECONDS[unit.removesuffix("s")]
