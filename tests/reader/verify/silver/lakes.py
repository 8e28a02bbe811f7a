"""Lakes with silver, filled without Spark."""

import json
from collections.abc import Sequence

from tests.reader.verify.lake import BRONZE, Lake
from tests.reader.verify.silver.tables import CONFLICTS, KEPT, LATE, LEDGER, decided

from consumer.iceberg.marker import Committed, Marker, property_of
from lakeproof.settings import Settings
from lakeproof.tables.names import silver_tables
from lakeproof.tables.schemas import ensure_silver_tables

# In the order of the consumer's appends.
TABLES = (CONFLICTS, LATE, LEDGER, KEPT)


def batch(*events: tuple[str, str, str]) -> bytes:
    return json.dumps(
        [
            {
                "user_id": content,
                "event_id": key,
                "event_timestamp": at,
                "event_type": "page_view",
                "properties": {"a": 1},
            }
            for key, at, content in events
        ]
    ).encode()


LANDED = [
    batch(("x", "2026-01-01T10:00:00Z", "a"), ("y", "2026-01-01T10:00:00Z", "a")),
    batch(("x", "2026-01-01T10:00:00Z", "a"), ("x", "2026-01-01T10:00:00Z", "b"), ("z", "2026-01-01T10:00:00Z", "a")),
    batch(("late", "2025-12-20T10:00:00Z", "a"), ("new", "2026-01-01T11:00:00Z", "a")),
]


class SilverLake(Lake):
    """A lake with a few micro-batches, some of which are in silver."""

    def __init__(self, settings: Settings, landed: Sequence[bytes] = LANDED) -> None:
        super().__init__(settings)
        ensure_silver_tables(self.catalog, self.contract, silver_tables(self.contract.stream))
        for number, content in enumerate(landed):
            self.land({f"{number}.json": content})
            self.consume(micro_batch=number)

    def decide(self, start: int, end: int, names: tuple[str, ...] = TABLES) -> None:
        """Append the consumer's rows of silver for a range of micro-batches."""
        bronze = [row for row in self.rows(BRONZE) if row["_micro_batch_id"] < end]
        found = decided(bronze, self.contract.silver.horizon if self.contract.silver else None)
        for name in names:
            number = "micro_batch_id" if name == LEDGER else "_micro_batch_id"
            if new := [row for row in found[name] if start <= row[number] < end]:
                self.append(name, *new)
            self.mark(name, start, end)

    def mark(self, name: str, start: int, end: int) -> None:
        """Set the marker of a table."""
        table = self.catalog.load_table(name)
        marker = Marker("", end - 1, self.contract.digest, str(start), str(end), contents="")
        snapshot = table.current_snapshot()
        newest = Committed(marker, snapshot.snapshot_id if snapshot else 0, 1)
        with table.transaction() as transaction:
            transaction.set_properties({property_of("silver-events"): newest.as_text()})
