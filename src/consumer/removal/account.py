"""The account of removed rows: a table of the stream, which lists rows before they are removed.

So the ledger's counts and hashes always equal those of the tables and the account together, even after an interruption:
a row of the account that is still in a table shows that its request is unfinished.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from consumer.iceberg.append import append_once, open_table
from consumer.iceberg.marker import Marker
from consumer.iceberg.tasks import write_batches
from lakeproof.catalog import catalog_errors
from lakeproof.settings import Settings
from lakeproof.tables.names import (
    ATTEMPT,
    LETTER,
    POSITION,
    REMOVED_AT,
    REQUEST,
    Removal,
    stream_tables,
)
from lakeproof.tables.schemas import ensure_removals

_COLUMNS: list[tuple[str, pa.DataType]] = [
    (REQUEST, pa.string()),
    ("what", pa.string()),
    ("keyed_hash", pa.string()),
    ("table", pa.string()),
    ("source", pa.string()),
    (POSITION, pa.int64()),
    (LETTER, pa.int32()),
    (ATTEMPT, pa.int32()),
    ("micro_batch_id", pa.int64()),
    ("codes", pa.string()),
    ("rescued", pa.int64()),
    ("rows", pa.int64()),
    ("hash", pa.int64()),
    ("facts", pa.string()),
    (REMOVED_AT, pa.timestamp("us", "UTC")),
]

Key = tuple[str, int, int, int]
"""Source and position of a row, the `_attempt` of a dead letter, the number of an attempt; 0 if it has none."""


@dataclass(frozen=True)
class Entry:
    """A row that was, or will be, removed from a table."""

    table: str
    source: str
    position: int
    micro_batch: int | None
    hash: int
    letter: int = 0
    attempt: int = 0
    codes: str | None = None
    rescued: int = 0
    facts: Mapping[str, Any] | None = None
    request: str = ""

    @property
    def key(self) -> Key:
        """Key of the row in its table."""
        return self.source, self.position, self.letter, self.attempt


@dataclass
class Account:
    """The account of a stream."""

    entries: dict[str, dict[Key, Entry]] = field(default_factory=dict)  # erased rows, by table
    requests: dict[str, str] = field(default_factory=dict)  # keyed hash of each erasure, by its id
    rebuilt: set[str] = field(default_factory=set)  # ids of erasures
    complete: set[str] = field(default_factory=set)

    @property
    def unfinished(self) -> list[str]:
        """Ids of the erasures that were begun but not finished."""
        return sorted(self.requests.keys() - self.complete)

    def of(self, keyed_hash: str) -> list[str]:
        """Return the ids of the erasures of a condition, by its keyed hash."""
        return sorted(request for request, found in self.requests.items() if found == keyed_hash)


def new_request() -> str:
    """Return a new id for an erasure."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def read_account(catalog: Catalog, stream: str) -> Account:
    """Read the account of a stream."""
    name, found = stream_tables(stream).removals, Account()
    with catalog_errors():
        if not catalog.table_exists(name):
            return found
        rows = catalog.load_table(name).scan().to_arrow().to_pylist()
    for row in rows:
        found.requests[row[REQUEST]] = row["keyed_hash"]
        if row["what"] != Removal.ERASED:
            (found.complete if row["what"] == Removal.COMPLETE else found.rebuilt).add(row[REQUEST])
            continue
        entry = Entry(
            row["table"],
            row["source"],
            row[POSITION],
            row["micro_batch_id"],
            row["hash"],
            row[LETTER] or 0,
            row[ATTEMPT] or 0,
            row["codes"],
            row["rescued"] or 0,
            request=row[REQUEST],
        )
        found.entries.setdefault(entry.table, {})[entry.key] = entry
    return found


def write_account(
    spark: SparkSession,
    settings: Settings,
    catalog: Catalog,
    stream: str,
    request: str,
    what: Removal,
    entries: Iterable[Entry],
    keyed_hash: str | None = None,
) -> None:
    """Add rows to the account of a stream, in one commit."""
    name, query = stream_tables(stream).removals, f"removals-{stream}"
    with catalog_errors():
        ensure_removals(catalog, stream)
    table = open_table(spark, name, query)
    newest = table.newest()
    number = newest.next_number if newest else 0
    marker = Marker(request, number, "", str(number), str(number + 1))
    target = table.target(marker)
    if target is None:
        raise RuntimeError(f"{name} has the number {number} already.")
    batches = list(_batches(request, what, keyed_hash, list(entries)))
    append_once(table, marker, write_batches(batches, target, settings.s3).files)


def _batches(request: str, what: Removal, keyed_hash: str | None, entries: Sequence[Entry]) -> Iterator[pa.RecordBatch]:
    shared = {REQUEST: request, "what": str(what), "keyed_hash": keyed_hash, REMOVED_AT: datetime.now(UTC)}
    rows: list[dict[str, Any]] = [
        {
            **shared,
            "table": each.table,
            "source": each.source,
            POSITION: each.position,
            LETTER: each.letter or None,
            ATTEMPT: each.attempt or None,
            "micro_batch_id": each.micro_batch,
            "codes": each.codes,
            "rescued": each.rescued,
            "rows": 1,
            "hash": each.hash,
            "facts": None if each.facts is None else json.dumps(each.facts, default=str),
        }
        for each in entries
    ]
    if not entries:
        rows = [shared | {"rows": 0, "hash": 0}]
    yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(_COLUMNS))
