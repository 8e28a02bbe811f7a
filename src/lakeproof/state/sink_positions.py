"""Positions of sinks: the marker up to which a table was sent to a topic."""

import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from lakeproof.errors import LakeproofError
from lakeproof.state.database import open_database, transaction
from lakeproof.state.schema import SINK_POSITIONS

NO_MARKER = ""
"""Marker of a sink that has no position, and gets the whole table."""


@dataclass(frozen=True)
class SinkPosition:
    """Position of a sink in its table."""

    table_id: str  # changes if the table is replaced
    topic_id: str  # assigned by the brokers when the topic was created
    marker: str  # all rows up to this marker of the table were sent


def sink_lease(sink: str) -> str:
    """Lease of the query that fills a sink."""
    return f"sink.{sink}"


class SinkPositions:
    """The positions of all sinks."""

    def __init__(self, database: str) -> None:
        self._engine = open_database(database)

    def get(self, sink: str) -> SinkPosition | None:
        """Return the position of a sink; None if nothing was sent, or everything is to be sent again."""
        columns = SINK_POSITIONS.c.table_id, SINK_POSITIONS.c.topic_id, SINK_POSITIONS.c.marker
        with transaction(self._engine) as connection:
            row = connection.execute(select(*columns).where(SINK_POSITIONS.c.sink == sink)).one_or_none()
        return SinkPosition(*row) if row and row.marker else None

    def record(self, sink: str, table: str, position: SinkPosition, before: SinkPosition | None) -> None:
        """Advance a sink; raise LakeproofError if another consumer moved it."""
        values = asdict(position) | {"recorded_at": time.time()}
        same = (SINK_POSITIONS.c.sink == sink) & (SINK_POSITIONS.c.marker == (before.marker if before else NO_MARKER))
        try:
            with transaction(self._engine) as connection:
                moved = connection.execute(update(SINK_POSITIONS).where(same).values(values)).rowcount == 1
                if not moved and before is None:
                    connection.execute(insert(SINK_POSITIONS), {"sink": sink, "table_name": table, **values})
                    moved = True
        except IntegrityError:
            moved = False
        if not moved:
            raise LakeproofError(
                f"Another consumer sends {table} to the same topic.", "Run only one of them. No message is lost."
            )

    def recorded_at(self, sink: str) -> datetime | None:
        """Return the time in UTC when the position of a sink was recorded; None without a position."""
        has = (SINK_POSITIONS.c.sink == sink) & (SINK_POSITIONS.c.marker != NO_MARKER)
        with transaction(self._engine) as connection:
            at = connection.scalar(select(SINK_POSITIONS.c.recorded_at).where(has))
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def sinks_of(self, table: str) -> list[str]:
        """Return all sinks that a table was ever sent to."""
        with transaction(self._engine) as connection:
            found = connection.scalars(select(SINK_POSITIONS.c.sink).where(SINK_POSITIONS.c.table_name == table))
            return sorted(found)

    def tables(self) -> set[str]:
        """Return the tables that were sent to topics."""
        with transaction(self._engine) as connection:
            return set(connection.scalars(select(SINK_POSITIONS.c.table_name)))

    def forget(self, sink: str) -> None:
        """Remove the position of a sink, but not that the table was sent there: an erasure searches the topic."""
        with transaction(self._engine) as connection:
            connection.execute(update(SINK_POSITIONS).where(SINK_POSITIONS.c.sink == sink).values(marker=NO_MARKER))
