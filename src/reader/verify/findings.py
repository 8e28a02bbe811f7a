"""What verify finds about a source, from what was landed, what the tables hold and what the ledger says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lakeproof.reasons import Reason
from lakeproof.storage import StoredFile

_NOT_READ = {Reason.CHANGED, Reason.ABSENT}


class Status(StrEnum):
    """What a source is. Of several, the one that is listed first counts."""

    LOST = "lost"
    """A landed unit is in no table, or the ledger's row is missing."""
    DOUBLED = "doubled"
    """A row has no landed unit of its own: a position comes twice, does not exist, or the source never landed."""
    CHANGED = "changed"
    """What lies there is not what was read, or what is kept or booked is not what was landed."""
    EXPIRED = "expired"
    """The file is gone; tables and ledger agree."""
    PENDING = "pending"
    """Landed, and not consumed yet."""
    OK = "ok"
    """Each landed unit is in one table, once, and the ledger agrees."""

    @property
    def off(self) -> bool:
        """Whether something is wrong."""
        return self in (Status.LOST, Status.DOUBLED, Status.CHANGED)


@dataclass(frozen=True)
class Finding:
    """A source, its status, and why.

    Parameters
    ----------
    source, status
        Its name, and its status.
    details
        Why.
    waiting
        Of a pending partition: how many offsets are not consumed yet.
    """

    source: str
    status: Status
    details: tuple[str, ...] = ()
    waiting: int = 0


@dataclass(frozen=True)
class Account:
    """What the tables hold of a source.

    Parameters
    ----------
    rows, bronze
        Rows in both tables, and of these in bronze.
    positions, first, last
        Distinct positions, the least and the greatest.
    dead
        Dead letters by set of reasons, joined by ``+``.
    rescued
        Values that are kept beside the columns of bronze.
    ingested_at
        When the newest of its rows was judged, in seconds since 1970.
    """

    rows: int = 0
    bronze: int = 0
    positions: int = 0
    first: int | None = None
    last: int | None = None
    dead: Mapping[str, int] = field(default_factory=dict)
    rescued: int = 0
    ingested_at: float | None = None

    @property
    def by_reference(self) -> bool:
        """Whether it was too large to be read, and is one dead letter without its bytes."""
        return Reason.BATCH_TOO_LARGE in self.dead

    def is_exactly(self, units: int) -> bool:
        """Whether its positions are 0 to ``units - 1``, each once."""
        span = (0, units - 1) if units else (None, None)
        return self.rows == self.positions == units and (self.first, self.last) == span


@dataclass(frozen=True)
class Booking:
    """The ledger's row of a source; `rows` says how many there are."""

    rows: int
    size: int
    etag: str
    units: int
    bronze: int
    dead: Mapping[str, int]
    rescued: int = 0
    discarded: int = 0
    content_hash: str | None = None


@dataclass(frozen=True)
class Evidence:
    """All that is known about a source.

    Parameters
    ----------
    landed, account, booking
        The file as it lies there, what the tables hold, what the ledger says; each None where there is nothing.
    content_hash
        Hash of the file's bytes; None where they were not looked at.
    passed
        Whether a position is behind it already, so that it will not be read.
    units
        How many units it has: recounted, or else as the ledger says.
    whole
        Whether it was found to be a batch that cannot be split.
    missing, extra
        Positions that no table has, and of rows that have no unit of their own: their number, and the first few.
    contents
        What is kept and is not what was landed, in words.
    """

    landed: StoredFile | None
    account: Account | None
    booking: Booking | None
    content_hash: str | None = None
    passed: bool = False
    units: int = 0
    whole: bool = False
    missing: tuple[int, Sequence[int]] = (0, ())
    extra: tuple[int, Sequence[int]] = (0, ())
    contents: Sequence[str] = ()


def judge(source: str, evidence: Evidence) -> Finding:
    """Say what a source is."""
    landed, account, booking = evidence.landed, evidence.account, evidence.booking
    if not booking and not account:
        if evidence.passed:
            return Finding(source, Status.LOST, ("it is in no table, and the consumer is already past its position",))
        return Finding(source, Status.PENDING)
    if not booking and not landed:
        return Finding(source, Status.DOUBLED, ("it has rows, but is neither in the landing zone nor in the ledger",))
    problems = _problems(evidence, account or Account())
    if problems:
        worst = min((status for status, _ in problems), key=list(Status).index)
        return Finding(source, worst, tuple(text for _, text in problems))
    return Finding(source, Status.OK if landed else Status.EXPIRED)


def is_changed(
    landed: StoredFile | None, account: Account | None, booking: Booking | None, content_hash: str | None = None
) -> bool:
    """Whether what lies there is known not to be what was read.

    A copy of the file, or a restored one, may have another tag: then `content_hash` of its bytes decides.
    """
    if account and not _NOT_READ.isdisjoint(account.dead):
        return True
    if not landed or not booking or landed.etag == booking.etag or (account and account.by_reference):
        return bool(landed and booking and landed.size != booking.size)
    return landed.size != booking.size or content_hash is None or content_hash != booking.content_hash


def may_be_a_copy(landed: StoredFile, booking: Booking | None) -> bool:
    """Whether only the bytes can tell that a file is what was read."""
    if not booking or not booking.content_hash:
        return False
    return landed.size == booking.size and landed.etag != booking.etag


def _problems(evidence: Evidence, account: Account) -> list[tuple[Status, str]]:
    landed, booking = evidence.landed, evidence.booking
    problems = []
    if evidence.missing[0]:
        problems.append((Status.LOST, f"of {evidence.units:,} units, {_listed(evidence.missing)} are in no table"))
    if evidence.extra[0]:
        text = f"it has {evidence.units:,} units; rows without a unit of their own: {_listed(evidence.extra)}"
        problems.append((Status.DOUBLED, text))
    if evidence.whole and account.bronze:
        problems.append((Status.LOST, "the batch cannot be split, so it is one dead letter, but bronze has rows of it"))
    if not booking:
        problems.append((Status.LOST, "the ledger has no row for it"))
    elif booking.rows > 1:
        problems.append((Status.DOUBLED, f"the ledger has {booking.rows} rows for it"))
    if Reason.CHANGED in account.dead:
        problems.append((Status.CHANGED, "it was overwritten after it was listed and before it was read"))
    elif Reason.ABSENT in account.dead:
        if landed:  # somebody said that it is gone for good
            problems.append((Status.LOST, "it was given up, but is back: land it again under another name"))
    elif booking and landed and is_changed(landed, account, booking, evidence.content_hash):
        how = "another size" if landed.size != booking.size else "the same size, other bytes"
        problems.append((Status.CHANGED, f"it was overwritten after it was read: {how}"))
    problems += [(Status.CHANGED, text) for text in evidence.contents]
    if booking and booking.rows == 1 and (text := difference(booking, account)):
        problems.append((Status.CHANGED, text))
    return problems


def _listed(positions: tuple[int, Sequence[int]]) -> str:
    count, first = positions
    return f"{count:,} (at {', '.join(map(str, first))}{', …' if count > len(first) else ''})"


def difference(booking: Booking, account: Account) -> str:
    """In what the ledger differs from the tables."""
    booked = {"units": booking.units, "bronze": booking.bronze, "rescued values": booking.rescued}
    booked |= _dead(booking.dead)
    held = {"units": account.rows, "bronze": account.bronze, "rescued values": account.rescued, **_dead(account.dead)}
    parts = [
        f"{name}: ledger {booked.get(name, 0):,}, tables {held.get(name, 0):,}"
        for name in {**booked, **held}
        if booked.get(name, 0) != held.get(name, 0)
    ]
    return f"the counts of ledger and tables differ: {'; '.join(parts)}" if parts else ""


def _dead(counts: Mapping[str, int]) -> dict[str, int]:
    return {f"dead letters {reasons}": count for reasons, count in counts.items()}
