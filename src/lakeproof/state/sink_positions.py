"""Positions of sinks: the marker up to which a table was sent to a topic."""

import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from lakeproof.errors import LakeproofError
from lakeproof.state.database import open_database, transaction
from lakeproof.state.schema import SINK_POSITIONS


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
        """Return the position of a sink; None if nothing was sent."""
        columns = SINK_POSITIONS.c.table_id, SINK_POSITIONS.c.topic_id, SINK_POSITIONS.c.marker
        with transaction(self._engine) as connection:
            row = connection.execute(select(*columns).where(SINK_POSITIONS.c.sink == sink)).one_or_none()
        return None if row is None else SinkPosition(*row)

    def record(self, sink: str, table: str, position: SinkPosition, before: SinkPosition | None) -> None:
        """Advance a sink; raise LakeproofError if another consumer moved it."""
        values = asdict(position) | {"recorded_at": time.time()}
        try:
            with transaction(self._engine) as connection:
                if before is None:
                    connection.execute(insert(SINK_POSITIONS), {"sink": sink, "table_name": table, **values})
                    return
                same = (SINK_POSITIONS.c.sink == sink) & (SINK_POSITIONS.c.marker == before.marker)
                moved = connection.execute(update(SINK_POSITIONS).where(same).values(values)).rowcount == 1
        except IntegrityError:
            moved = False
        if not moved:
            raise LakeproofError(
                f"Another consumer sends {table} to the same topic.", "Run only one of them. No message is lost."
            )

    def recorded_at(self, sink: str) -> datetime | None:
        """Return the time in UTC when the position of a sink was recorded; None if nothing was sent."""
        with transaction(self._engine) as connection:
            at = connection.scalar(select(SINK_POSITIONS.c.recorded_at).where(SINK_POSITIONS.c.sink == sink))
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def sinks_of(self, table: str) -> list[str]:
        """Return the sinks of a table."""
        with transaction(self._engine) as connection:
            found = connection.scalars(select(SINK_POSITIONS.c.sink).where(SINK_POSITIONS.c.table_name == table))
            return sorted(found)

    def tables(self) -> set[str]:
        """Return the tables that were sent to topics."""
        with transaction(self._engine) as connection:
            return set(connection.scalars(select(SINK_POSITIONS.c.table_name)))

    def forget(self, sink: str) -> None:
        """Remove the position of a sink."""
        with transaction(self._engine) as connection:
            connection.execute(delete(SINK_POSITIONS).where(SINK_POSITIONS.c.sink == sink))
