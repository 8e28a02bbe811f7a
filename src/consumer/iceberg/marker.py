"""Markers: the record of a micro-batch in its commit, and the rules that decide by markers.

A marker has the range of its micro-batch: where it starts and ends in its source. A table keeps the newest marker of
each query in a property, which is set in the same commit as the rows. Expiry and compaction do not affect properties.
The marker is in the snapshot's summary, too, and the property names the snapshot: this distinguishes a table that was
rolled back or replaced from a table whose old snapshots have expired.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from lakeproof.errors import LakeproofError
from lakeproof.settings import Limits
from lakeproof.tables.names import MARKER


@dataclass(frozen=True)
class Marker:
    """The record of a micro-batch in its commit: the range of the source after position `start`, up to `end`."""

    checkpoint_id: str  # unique id of the checkpoint; for a product of gold, unique id of the silver table
    micro_batch_id: int
    contract: str  # digest of the contract that judged it
    start: str
    end: str
    limits: Limits = field(default_factory=Limits)
    """Size limits of batches and records: a micro-batch is finished under the limits with which it began."""
    contents: str = ""
    """Digest of the content read, compared when a repeated micro-batch reads files with other tags. For silver, the
    watermark; for a product of gold whose windows are final, the horizon that these windows are before."""
    replays: int = 0
    """Number of the stream's micro-batches of replays, including this one if it is of a replay."""

    @property
    def is_replay(self) -> bool:
        """Whether the micro-batch is of a replay, which takes nothing from the source."""
        return self.replays > 0 and self.start == self.end

    def holds_the_same(self, other: "Marker") -> bool:
        """Return whether both have the same range or replay, under the same contract, from any checkpoint."""
        return (self.start, self.end, self.contract, self.replays) == (
            other.start,
            other.end,
            other.contract,
            other.replays,
        )

    def follows(self, newest: "Marker") -> bool:
        """Return whether the micro-batch directly follows the micro-batch of another marker."""
        return newest.end == self.start and newest.replays == self.replays - self.is_replay


@dataclass(frozen=True)
class Committed:
    """The newest marker of a table, and the snapshot of its commit."""

    marker: Marker
    snapshot_id: int
    sequence_number: int  # of the snapshot, or a smaller one if other commits came between

    @property
    def next_number(self) -> int:
        """Number of the first micro-batch that the table lacks."""
        return self.marker.micro_batch_id + 1

    def as_text(self) -> str:
        """Return the value of the property."""
        return json.dumps(asdict(self), default=Limits.model_dump)

    @classmethod
    def parse(cls, text: str) -> "Committed":
        """Parse the result of :meth:`as_text`."""
        read = json.loads(text)
        marker = Marker(**read["marker"] | {"limits": Limits(**read["marker"]["limits"])})
        return cls(marker, read["snapshot_id"], read["sequence_number"])


@dataclass(frozen=True)
class Snapshot:
    """The relevant parts of a table's snapshot. `entry` looks up its summary, which may be a call to the JVM."""

    id: int
    parent_id: int | None
    sequence_number: int
    entry: Callable[[str], str | None] = lambda _: None


class MarkerLostError(LakeproofError):
    """The table's newest marker does not fit: appending could repeat or skip something."""


def property_of(query: str) -> str:
    """Return the name of the property with the newest marker of a query."""
    return MARKER + query


def committed(properties: Mapping[str, str], query: str) -> Committed | None:
    """Return the newest marker of a query from a table's properties."""
    text = properties.get(property_of(query))
    return Committed.parse(text) if text else None


def has_done(newest: Committed | None, marker: Marker, table: str) -> bool:
    """Return whether a table with the newest marker `newest` already has the micro-batch of `marker`."""
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
    """Check that a table without a marker of a query has no rows either, unless other queries wrote them."""
    if rows and not any(name.startswith(MARKER) for name in properties):
        raise MarkerLostError(
            f"Cannot determine which files the {rows:,} rows of {table} come from: its property {MARKER}… was removed, "
            "and no snapshot with it is left.",
            f"Restore the property from a backup of the catalog. {_read_again(_stream(table))}",
        )


def check_history(
    newest: Committed, current: Snapshot | None, find: Callable[[int], Snapshot | None], table: str
) -> None:
    """Check that a table still has the commit of its newest marker; `find` returns None for an expired snapshot."""
    snapshot = current
    while snapshot is not None:
        if snapshot.id == newest.snapshot_id:
            return
        if snapshot.parent_id is None or snapshot.sequence_number < newest.sequence_number:
            break  # the snapshot is older than the append, or the first of all
        snapshot = find(snapshot.parent_id)
        if snapshot is None:
            return  # the ancestors have expired, and the snapshot is newer than the append
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
    """Return the micro-batch that bronze has and the ledger lacks, or None. There is at most one."""
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
    """Return whether the table of attempts has a replay that the ledger, with `replays` of them, lacks.

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
    """Return whether a table that is filled after bronze is at the same micro-batch, or one micro-batch behind."""
    if bronze is None or behind is None:
        return behind is None and (bronze is None or is_origin(bronze.start))
    return behind.holds_the_same(bronze) or bronze.follows(behind)


def _is_ahead(ledger: Marker, dead_letters: Marker) -> bool:
    """Return whether the ledger has a micro-batch that the dead letters lack, though they are filled first."""
    return ledger.follows(dead_letters) and not ledger.holds_the_same(dead_letters)


def _read_again(stream: str) -> str:
    return (
        f"Or drop bronze.{stream}, dead_letters.{stream}, dead_letters.{stream}_attempts and ledger.{stream}, and run "
        f"`consumer reset {stream}`, to read everything in the landing zone again."
    )


def _stream(table: str) -> str:
    return table.partition(".")[2]


def _short(position: str) -> str:
    """Return a position for people: without the digest of the preceding range."""
    return f"position {position.partition(':')[0]}"
