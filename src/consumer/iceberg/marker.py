"""Markers: what a commit records of its micro-batch, and the rule that decides by them.

A marker names what its micro-batch holds: where it starts and ends in its source. A table keeps the newest one of each
query in a property, which is set in the same commit as the rows. No expiry or compaction reaches it there. It is
in the snapshot's summary, too, and the property names the snapshot: this distinguishes a table that was rolled back, or
replaced, from one whose old snapshots have expired.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from lakeproof.errors import LakeproofError
from lakeproof.settings import Limits
from lakeproof.tables.names import MARKER


@dataclass(frozen=True)
class Marker:
    """What a commit records of its micro-batch: what comes behind the position `start` of the source, up to `end`."""

    checkpoint_id: str  # the checkpoint's own unique id; of a product of gold, that of the silver table that it follows
    micro_batch_id: int
    contract: str  # digest of the contract that judged it
    start: str
    end: str
    limits: Limits = field(default_factory=Limits)
    """How large batches and records could be: a micro-batch is finished under the limits that it was begun under."""
    contents: str = ""
    """Digest of what was read, which a replay that reads files with other tags compares. Of silver, the watermark; of
    a product of gold whose windows are final, the horizon that they are before."""
    replays: int = 0
    """How many micro-batches of replays the stream has had, with this one if it is of a replay."""

    @property
    def is_replay(self) -> bool:
        """Whether its micro-batch is of a replay, which takes nothing from the source."""
        return self.replays > 0 and self.start == self.end

    def holds_the_same(self, other: "Marker") -> bool:
        """Whether both are of the same range, or replay, judged under the same contract, by whatever checkpoint."""
        return (self.start, self.end, self.contract, self.replays) == (
            other.start,
            other.end,
            other.contract,
            other.replays,
        )

    def follows(self, newest: "Marker") -> bool:
        """Whether its micro-batch comes right behind that of another marker."""
        return newest.end == self.start and newest.replays == self.replays - self.is_replay


@dataclass(frozen=True)
class Committed:
    """The newest marker of a table, and the snapshot of its commit."""

    marker: Marker
    snapshot_id: int
    sequence_number: int  # of the snapshot, or a smaller one if other commits came between

    @property
    def next_number(self) -> int:
        """The number of the first micro-batch that the table does not have."""
        return self.marker.micro_batch_id + 1

    def as_text(self) -> str:
        """The value of the property."""
        return json.dumps(asdict(self), default=Limits.model_dump)

    @classmethod
    def parse(cls, text: str) -> "Committed":
        """Read what :meth:`as_text` made."""
        read = json.loads(text)
        marker = Marker(**read["marker"] | {"limits": Limits(**read["marker"]["limits"])})
        return cls(marker, read["snapshot_id"], read["sequence_number"])


@dataclass(frozen=True)
class Snapshot:
    """What is looked at of a table's snapshot. `entry` looks up its summary, which may be a call to the JVM."""

    id: int
    parent_id: int | None
    sequence_number: int
    entry: Callable[[str], str | None] = lambda _: None


class MarkerLostError(LakeproofError):
    """The table's newest marker does not fit: appending could repeat or skip something."""


def property_of(query: str) -> str:
    """Name of the property that holds the newest marker of a query."""
    return MARKER + query


def committed(properties: Mapping[str, str], query: str) -> Committed | None:
    """The newest marker of a query, from a table's properties."""
    text = properties.get(property_of(query))
    return Committed.parse(text) if text else None


def has_done(newest: Committed | None, marker: Marker, table: str) -> bool:
    """Whether a table whose newest marker is `newest` has the micro-batch of `marker` already."""
    if newest is None or marker.follows(newest.marker):
        return False
    if newest.marker.holds_the_same(marker):
        return True
    if newest.marker.end == marker.start:
        raise MarkerLostError(
            f"{table} has {newest.marker.replays:,} micro-batches of replays, but micro-batch "
            f"{marker.micro_batch_id} comes behind {marker.replays - marker.is_replay:,}.",
            f"Restore the tables together, from one backup of the catalog. {_read_again(_stream(table))}",
        )
    raise MarkerLostError(
        f"{table} is at {_short(newest.marker.end)}, but micro-batch {marker.micro_batch_id} goes from "
        f"{_short(marker.start)} to {_short(marker.end)}.",
        f"Run `consumer reset {_stream(table)}`, to resume from the position in the tables. Nothing is read twice.",
    )


def check_marked(properties: Mapping[str, str], rows: int, table: str) -> None:
    """Make sure that a table without a marker of a query has no rows either, unless they are of other queries."""
    if rows and not any(name.startswith(MARKER) for name in properties):
        raise MarkerLostError(
            f"Cannot determine which files the {rows:,} rows of {table} come from: its property {MARKER}… was removed, "
            "and no snapshot with it is left.",
            f"Restore the property from a backup of the catalog. {_read_again(_stream(table))}",
        )


def check_history(
    newest: Committed, current: Snapshot | None, find: Callable[[int], Snapshot | None], table: str
) -> None:
    """Make sure that a table still has what its newest marker says; `find` returns None for an expired snapshot."""
    snapshot = current
    while snapshot is not None:
        if snapshot.id == newest.snapshot_id:
            return
        if snapshot.parent_id is None or snapshot.sequence_number < newest.sequence_number:
            break  # it is before the append, or the first of all
        snapshot = find(snapshot.parent_id)
        if snapshot is None:
            return  # its ancestors were expired; it came after the append
    back = (
        f"To undo this, run: CALL lake.system.set_current_snapshot('{table}', {newest.snapshot_id})."
        if find(newest.snapshot_id)
        else f"Restore the stream's tables from a backup. {_read_again(_stream(table))}"
    )
    raise MarkerLostError(
        f"{table} was rolled back or replaced: it no longer has the rows of micro-batch "
        f"{newest.marker.micro_batch_id}, which the consumer appended.",
        back,
    )


def unfinished(
    stream: str,
    bronze: Committed | None,
    dead_letters: Committed | None,
    ledger: Committed | None,
    is_origin: Callable[[str], bool],
) -> Marker | None:
    """The micro-batch that bronze has and the ledger lacks, or None. There is one at most."""
    ahead = ledger is not None and (dead_letters is None or _is_ahead(ledger.marker, dead_letters.marker))
    for other in (dead_letters, ledger):
        if ahead or not _fits(other.marker if other else None, bronze.marker if bronze else None, is_origin):
            ends = ", ".join(
                f"{name} {_short(each.marker.end) if each else 'nothing'}"
                for name, each in (("bronze", bronze), ("dead letters", dead_letters), ("ledger", ledger))
            )
            raise MarkerLostError(
                f"The tables of {stream} are from different points in time: {ends}.",
                f"Restore the tables together, from one backup of the catalog. {_read_again(stream)}",
            )
    if bronze is None or (ledger and bronze.marker.holds_the_same(ledger.marker)):
        return None
    return bronze.marker


def check_attempts(stream: str, attempts: Committed | None, replays: int) -> bool:
    """Whether the table of attempts has a replay that the ledger lacks, which is at micro-batch `replays` of replays.

    Without the attempts, closed dead letters would be open again.
    """
    has = int(attempts.marker.end) if attempts else 0
    if has not in (replays, replays + 1):
        raise MarkerLostError(
            f"dead_letters.{stream}_attempts has {has:,} micro-batches of replays, but ledger.{stream} has "
            f"{replays:,}. One of them was removed, rolled back or replaced.",
            "Restore the tables together, from one backup of the catalog.",
        )
    return has > replays


def _fits(behind: Marker | None, bronze: Marker | None, is_origin: Callable[[str], bool]) -> bool:
    """Whether a table that is filled after bronze is where bronze is, or one micro-batch behind it."""
    if bronze is None or behind is None:
        return behind is None and (bronze is None or is_origin(bronze.start))
    return behind.holds_the_same(bronze) or bronze.follows(behind)


def _is_ahead(ledger: Marker, dead_letters: Marker) -> bool:
    """Whether the ledger has what the dead letters lack, though they are filled first."""
    return ledger.follows(dead_letters) and not ledger.holds_the_same(dead_letters)


def _read_again(stream: str) -> str:
    return (
        f"Or drop bronze.{stream}, dead_letters.{stream}, dead_letters.{stream}_attempts and ledger.{stream}, and run "
        f"`consumer reset {stream}`, to read everything in the landing zone again."
    )


def _stream(table: str) -> str:
    return table.partition(".")[2]


def _short(position: str) -> str:
    """A position for people: without the digest of what comes before it."""
    return f"position {position.partition(':')[0]}"
