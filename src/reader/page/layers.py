"""The tables of a stream's layers on the page: commits, freshness and growth, from their metadata."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakeproof.tables.names import MARKER
from reader.metadata import TableMetadata
from reader.page.model import Growth, LayerRow
from reader.page.state import Waiting
from reader.tables import table_facts
from reader.verify.tables.layers import newest_marker


@dataclass(frozen=True)
class Layer:
    """A table, and the query that fills it."""

    layer: str  # `final`: the table waits until windows are final
    name: str
    query: str
    table: TableMetadata

    @property
    def next_number(self) -> int | None:
        """The first micro-batch that is not in the table; None before the first commit."""
        marker = newest_marker(self.table, self.query)
        return int(marker["micro_batch_id"]) + 1 if marker else None

    def commits(self) -> Iterator[tuple[int, datetime]]:
        """Yield the newest micro-batch of each commit and the time of the commit, oldest first."""
        for snapshot in self.table.snapshots:
            if text := snapshot.summary.get(MARKER + self.query):
                yield int(json.loads(text)["marker"]["micro_batch_id"]), time_of(snapshot.timestamp_ms)


def layer_rows(layers: Sequence[Layer], waits: Waiting) -> Sequence[LayerRow]:
    """Return how far each layer is behind the one before it, and since when."""
    rows = []
    by_layer = {each.layer: each for each in layers}
    for each in layers:
        snapshot = each.table.current_snapshot()
        last = time_of(snapshot.timestamp_ms) if snapshot else None
        behind, since = "", None
        if each.layer == "bronze":
            unit = "unknown" if waits.count is None else f"{waits.count:,} waiting"
            behind, since = unit, waits.since
        elif (before := by_layer.get({"silver": "ledger", "gold": "silver"}.get(each.layer, ""))) is not None:
            lag = max((before.next_number or 0) - (each.next_number or 0), 0)
            behind = f"{lag:,} micro-batch{'' if lag == 1 else 'es'}"
            if lag:
                later = [at for number, at in before.commits() if number >= (each.next_number or 0)]
                since = min(later, default=None)
        rows.append(LayerRow(each.layer, each.name, last, behind, since))
    return rows


def growth_of(name: str, table: TableMetadata) -> Growth:
    """Return the facts of a table, and its growth in the day up to its newest snapshot."""
    facts = table_facts(name, table)
    begin = facts.last_commit - timedelta(days=1) if facts.last_commit else None
    new = [each for each in table.snapshots if begin and time_of(each.timestamp_ms) >= begin]
    had = new[0].summary if new else {}

    def before(total: str, added: str, removed: str) -> int:
        """Return a total without the changes of the first commit of the day, which count."""
        now, more, less = (int(had.get(key) or 0) for key in (total, added, removed))
        return now - more + less

    rows = before("total-records", "added-records", "deleted-records")
    rows -= before("total-position-deletes", "added-position-deletes", "removed-position-deletes")
    files = before("total-data-files", "added-data-files", "deleted-data-files")
    size = before("total-files-size", "added-files-size", "removed-files-size")
    return Growth(facts, facts.rows - rows, facts.data_files - files, facts.bytes - size, len(new))


def time_of(milliseconds: int) -> datetime:
    """Return the time of a snapshot."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
