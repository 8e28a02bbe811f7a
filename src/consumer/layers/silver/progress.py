"""The micro-batches of bronze that silver has not decided yet, according to the tables."""

from collections import Counter
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from consumer.iceberg.marker import committed
from consumer.iceberg.scan import of_micro_batches, plan, read
from lakeproof.catalog import table_or_none
from lakeproof.checkpoint import bronze_query
from lakeproof.kafka.offsets import partition_name
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.tables.names import stream_tables

MAX_MICRO_BATCHES = 100
"""Maximum number of micro-batches of bronze that are decided at once: each has its own horizon."""

Counts = dict[tuple[str, int], int]
"""Number of rows in bronze by source (a file, or a partition of a topic) and micro-batch."""


@dataclass(frozen=True)
class Range:
    """Micro-batches of bronze, from `start` to before `end`."""

    start: int
    end: int
    rows: Counts  # number of rows of each source, according to bronze's ledger
    of_topic: bool  # whether the rows come from a topic: then a source is a partition


@dataclass(frozen=True)
class Bronze:
    """The rows of bronze, as its ledger and the account of removals count them."""

    ledger: Table  # bronze's ledger
    end: int  # the number of the next micro-batch of bronze, dead letters and ledger
    removals: Table | None = None  # the account of removed rows

    @property
    def id(self) -> str:
        """Unique id of the ledger; it changes if the tables are dropped and created again."""
        return str(self.ledger.metadata.table_uuid)


def bronze_of(catalog: Catalog, stream: str) -> Bronze:
    """Read the state of bronze."""
    names = stream_tables(stream)
    ledger = catalog.load_table(names.ledger)
    marker = committed(ledger.properties, bronze_query(stream))
    return Bronze(ledger, marker.next_number if marker else 0, table_or_none(catalog, names.removals))


def next_range(
    bronze: Bronze,
    start: int,
    end: int,
    max_rows: int,
    max_micro_batches: int = MAX_MICRO_BATCHES,
) -> Range | None:
    """Return the next micro-batches to decide, with at most `max_rows` rows or a single one; None if none are left."""
    if end <= start:
        return None
    end = min(end, start + max_micro_batches)
    whole = range_of(bronze, start, end)
    counts = whole.rows
    by_number: Counter[int] = Counter()
    for (_, number), count in counts.items():
        by_number[number] += count
    rows = 0
    for number in sorted(by_number):
        rows += by_number[number]
        if number > start and rows > max_rows:
            end = number
            break
    return replace(whole, end=end, rows={key: count for key, count in counts.items() if key[1] < end})


def range_of(bronze: Bronze, start: int, end: int) -> Range:
    """Return the micro-batches from `start` to before `end`, from bronze's ledger, without rows removed since."""
    ledger, removals = bronze.ledger, bronze.removals
    of_topic = recorded_topic(ledger.properties) is not None
    number = "micro_batch_id"
    found: Counter[tuple[str, int]] = Counter()

    def add(table: Table, sign: int, counted: str, *more: str) -> None:
        columns = {name: name for name in ("source", number, counted, *more)}
        scan = plan(table, ".".join(table.name()), columns, of_micro_batches(start, end, number))
        for row in (row for rows in read(scan) for row in rows.to_pylist()):
            if row.get("table", _name_of_bronze(ledger)) == _name_of_bronze(ledger):
                key = partition_name(row["source"]) if of_topic else row["source"], row[number]
                found[key] += sign * (row[counted] or 0)

    add(ledger, 1, "bronze")
    if removals:
        add(removals, -1, "rows", "table")
    return Range(start, end, {key: count for key, count in found.items() if count}, of_topic)


def _name_of_bronze(ledger: Table) -> str:
    return stream_tables(ledger.name()[-1]).bronze
