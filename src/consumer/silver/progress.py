"""How far silver is behind bronze: what the tables themselves say."""

from collections import Counter
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


@dataclass(frozen=True)
class Bronze:
    """What can be decided.

    Parameters
    ----------
    id
        Unique id of its ledger: another one, where the tables were dropped and created again.
    end
        The number of the micro-batch that bronze, dead letters and ledger will have next.
    """

    id: str
    end: int


def bronze_of(catalog: "Catalog", stream: str) -> Bronze:
    """How far bronze is."""
    ledger = catalog.load_table(stream_tables(stream).ledger)
    marker = committed(ledger.properties, bronze_query(stream))
    return Bronze(str(ledger.metadata.table_uuid), marker.marker.micro_batch_id + 1 if marker else 0)


def next_range(
    catalog: "Catalog",
    stream: str,
    start: int,
    end: int,
    max_rows: int,
    max_micro_batches: int = MAX_MICRO_BATCHES,
) -> Range | None:
    """What to decide next: micro-batches from `start`, of so many rows or a single one; None where there are none."""
    if end <= start:
        return None
    end = min(end, start + max_micro_batches)
    counts = rows_of(catalog, stream, start, end)
    by_number: Counter[int] = Counter()
    for (_, number), count in counts.items():
        by_number[number] += count
    rows = 0
    for number in sorted(by_number):
        rows += by_number[number]
        if number > start and rows > max_rows:
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
