"""Check values against the constraints of a contract, other than types."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.contracts import Bound, Constraints
from lakeproof.contracts.pattern import portable
from lakeproof.judge.scalars import shown
from lakeproof.reasons import Reason

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Examine = Callable[[Any, Any], Iterator[tuple[Reason, str]]]
"""Takes a JSON value and its converted form; yields the reasons against the value: code and detail."""


def examiner(constraints: Constraints) -> Examine:
    """Return a function that yields every reason that `constraints` give against a value."""
    least, most = in_column(constraints.minimum), in_column(constraints.maximum)
    matches = _matcher(constraints.pattern)

    def examine(value: Any, converted: Any) -> Iterator[tuple[Reason, str]]:
        if constraints.minimum and not _is_above(converted, least, constraints.minimum.exclusive):
            expected = expected_range(constraints.minimum, is_least=True)
            yield Reason.OUT_OF_RANGE, f"expected {expected}, got {shown(value)}"
        if constraints.maximum and not _is_above(most, converted, constraints.maximum.exclusive):
            expected = expected_range(constraints.maximum, is_least=False)
            yield Reason.OUT_OF_RANGE, f"expected {expected}, got {shown(value)}"
        if constraints.min_length is not None and len(converted) < constraints.min_length:
            expected = f"expected a length of at least {constraints.min_length}"
            yield Reason.WRONG_LENGTH, f"{expected}, got {len(converted)}: {shown(value)}"
        if constraints.max_length is not None and len(converted) > constraints.max_length:
            expected = f"expected a length of at most {constraints.max_length}"
            yield Reason.WRONG_LENGTH, f"{expected}, got {len(converted)}: {shown(value)}"
        if constraints.pattern is not None and not _is_found(matches, converted):
            yield Reason.PATTERN_MISMATCH, f"expected text matching {constraints.pattern}, got {shown(value)}"

    return examine


def _is_above(greater: Any, less: Any, exclusive: bool) -> bool:
    return bool(greater > less if exclusive else greater >= less)


def _matcher(pattern: str | None) -> Callable[[Any], Any]:
    form = portable(pattern or "")
    return lambda texts: pc.match_substring_regex(texts, form)


def _is_found(matches: Callable[[Any], Any], text: str) -> bool:
    try:
        return bool(matches(pa.array([text], pa.string()))[0].as_py())
    except UnicodeEncodeError:
        return True  # not valid Unicode, which is reported separately


def in_column(bound: Bound | None) -> Any:
    """Return a bound like a value of a column or of the exact judge: times are numbers since 1970."""
    match bound and bound.value:
        case datetime() as moment:
            return (moment - _EPOCH) // _MICROSECOND
        case date() as day:
            return day.toordinal() - _EPOCH.toordinal()
        case value:
            return value


def expected_range(bound: Bound, *, is_least: bool) -> str:
    """Describe a bound in words."""
    exclusive, inclusive = ("more than", "at least") if is_least else ("less than", "at most")
    end = bound.value.isoformat().replace("+00:00", "Z") if isinstance(bound.value, datetime) else bound.value
    return f"{exclusive if bound.exclusive else inclusive} {end}"
