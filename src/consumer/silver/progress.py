"""How far silver is behind bronze: what the tables themselves say."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from consumer.commit.marker import committed
from lakeproof.checkpoint import bronze_query
from lakeproof.tables.names import stream_tables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

MAX_MICRO_BATCHES = 100
"""Micro-batches of bronze that are decided at once, at most: each has a horizon of its own."""

Counts = dict[tuple[str, int], int]
"""How many rows a source of a micro-batch has in bronze."""


@dataclass(frozen=True)
class Range:
    """Micro-batches of bronze, from one number to before another.

    Parameters
    ----------
    start, end
        The first number, and the one behind the last.
    rows
        How many rows of each source they hold, as bronze's ledger says.
    """

    start: int
    end: int
    rows: Counts


def bronze_end(catalog: "Catalog", stream: str) -> int:
    """The number of the micro-batch that bronze, dead letters and ledger will have next."""
    marker = committed(catalog.load_table(stream_tables(stream).ledger).properties, bronze_query(stream))
    return marker.marker.micro_batch_id + 1 if marker else 0


def next_range(catalog: "Catalog", stream: str, start: int, max_rows: int) -> Range | None:
    """What to decide next: micro-batches from `start`, of so many rows or a single one; None where there are none."""
    end = bronze_end(catalog, stream)
    if end <= start:
        return None
    counts = rows_of(catalog, stream, start, end)
    rows = 0
    for number in sorted({number for _, number in counts}):
        rows += sum(count for (_, of), count in counts.items() if of == number)
        if number > start and (rows > max_rows or number >= start + MAX_MICRO_BATCHES):
            end = number
            break
    return Range(start, end, {key: count for key, count in counts.items() if key[1] < end})


def rows_of(catalog: "Catalog", stream: str, start: int, end: int) -> Counts:
    """How many rows each source of the micro-batches from `start` to before `end` has in bronze, as its ledger says."""
    ledger = catalog.load_table(stream_tables(stream).ledger)
    number = "micro_batch_id"
    scan = ledger.scan(f"{number} >= {start} and {number} < {end}", selected_fields=("source", number, "bronze"))
    found: Counts = {}
    for row in scan.to_arrow().to_pylist():
        if row["bronze"]:
            key = (row["source"], row[number])
            found[key] = found.get(key, 0) + row["bronze"]
    return found
