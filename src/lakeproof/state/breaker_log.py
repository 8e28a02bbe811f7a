"""Trips of the breakers of all streams: paused and accepted micro-batches, and recent warnings."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.engine import Row

from lakeproof.contracts import BreakerAction
from lakeproof.state.database import forgetting, open_database, transaction
from lakeproof.state.schema import BREAKER_TRIPS

_T = BREAKER_TRIPS.c


class QueryKind(StrEnum):
    """The kind of query that ran a micro-batch."""

    STREAM = "stream"
    PAST = "past"  # the batch query over the past of a topic


@dataclass(frozen=True)
class Trip:
    """A micro-batch with too many bad units."""

    number: int
    start: str
    end: str
    checkpoint_id: str
    found: Mapping[str, Any]  # counts, reasons and examples
    tripped_at: datetime  # UTC
    accepted_at: datetime | None = None  # when an operator let the units through
    ended_at: datetime | None = None


class BreakerLog:
    """The trips of one stream. Open it in the process that uses it: it holds a database connection."""

    def __init__(self, database: str, stream: str) -> None:
        self._engine = open_database(database)
        self._stream = stream
        self._mine = _T.stream == stream

    def warn(self, found: Mapping[str, Any]) -> None:
        """Record a warning, which replaces the previous one."""
        with transaction(self._engine) as connection:
            connection.execute(delete(BREAKER_TRIPS).where(self._mine, _T.action == BreakerAction.WARN))
        self._insert(QueryKind.STREAM, BreakerAction.WARN, ("", "", ""), found)

    def pause(
        self, query: QueryKind, holds: tuple[str, str, str], found: Mapping[str, Any], again: Trip | None
    ) -> None:
        """Record a paused micro-batch: `holds` is its start, end and checkpoint; `again` is an earlier trip of it."""
        if again is None:
            self._insert(query, BreakerAction.PAUSE, holds, found)
            return
        with transaction(self._engine) as connection:  # only this column: an operator may be accepting the trip
            row = update(BREAKER_TRIPS).where(self._mine, _T.number == again.number)
            connection.execute(row.values(found=json.dumps(found)))

    def paused(self, *queries: QueryKind) -> list[Trip]:
        """Paused micro-batches in the order in which they were paused."""
        meant = _T.query.in_(queries or list(QueryKind))
        return self._trips(_T.action == BreakerAction.PAUSE, _T.ended_at.is_(None), meant)

    def accept(self, *queries: QueryKind) -> list[Trip]:
        """Let paused micro-batches through, once; return them."""
        found = self.paused(*queries)
        with transaction(self._engine) as connection:
            for trip in found:
                row = update(BREAKER_TRIPS).where(self._mine, _T.number == trip.number, _T.accepted_at.is_(None))
                connection.execute(row.values(accepted_at=time.time()))
        return found

    def end(self, trip: Trip) -> None:
        """Record that the units of a pause were committed, or are no longer the next ones."""
        with transaction(self._engine) as connection:
            row = update(BREAKER_TRIPS).where(self._mine, _T.number == trip.number)
            connection.execute(row.values(ended_at=time.time()))

    def last_end(self) -> datetime | None:
        """Return the time when the last pause ended; None without a pause that ended."""
        with transaction(self._engine) as connection:
            return _time(connection.scalar(select(func.max(_T.ended_at)).where(self._mine)))

    def warning(self) -> Trip | None:
        """Return the newest warning."""
        return next(iter(self._trips(_T.action == BreakerAction.WARN)), None)

    def forget_examples(self, is_wanted: Callable[[Mapping[str, Any]], bool]) -> None:
        """Remove the wanted examples of bad units from all trips."""
        for trip in self._trips():
            examples = trip.found.get("examples", [])
            left = [each for each in examples if not is_wanted(each)]
            if left == examples:
                continue
            with forgetting(self._engine) as connection:
                row = update(BREAKER_TRIPS).where(self._mine, _T.number == trip.number)
                connection.execute(row.values(found=json.dumps({**trip.found, "examples": left})))

    def _insert(
        self, query: QueryKind, action: BreakerAction, holds: tuple[str, str, str], found: Mapping[str, Any]
    ) -> None:
        start, end, checkpoint_id = holds
        with transaction(self._engine) as connection:  # only the holder of the stream's lease calls this
            newest = connection.scalar(select(func.max(_T.number)).where(self._mine)) or 0
            row = {
                "stream": self._stream,
                "number": newest + 1,
                "query": query,
                "action": action,
                "start_position": start,
                "end_position": end,
                "checkpoint_id": checkpoint_id,
                "found": json.dumps(found),
                "tripped_at": time.time(),
            }
            connection.execute(BREAKER_TRIPS.insert(), row)

    def _trips(self, *conditions: ColumnElement[bool]) -> list[Trip]:
        query = select(BREAKER_TRIPS).where(self._mine, *conditions).order_by(_T.number)
        with transaction(self._engine) as connection:
            return [_trip(row) for row in connection.execute(query)]


def _trip(row: Row[Any]) -> Trip:
    return Trip(
        row.number,
        row.start_position,
        row.end_position,
        row.checkpoint_id,
        json.loads(row.found),
        datetime.fromtimestamp(row.tripped_at, UTC),
        _time(row.accepted_at),
        _time(row.ended_at),
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
