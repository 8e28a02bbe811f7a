"""Counts of a source in the tables and in the ledger, and their differences; SQL for both files and topics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Protocol

from lakeproof.reasons import Reason
from lakeproof.tables.names import CONTRACT_VERSION, POSITION, REASONS, RESCUED, SOURCE
from reader.connect import Session
from reader.views import identifier

if TYPE_CHECKING:
    import pyarrow as pa


def codes_of(reasons: str) -> str:
    """Return SQL of the set of reason codes of a dead letter, as text."""
    return f"coalesce(array_to_string(list_sort(list_distinct([reason.code FOR reason IN {reasons}])), '+'), '')"


def rescued_of(session: Session, bronze: str) -> str:
    """Return SQL of the number of rescued values of a row of bronze."""
    return f"coalesce(cardinality({RESCUED}), 0)" if RESCUED in session.columns(bronze) else "0"


CODES = codes_of(REASONS)
HAS_BYTES = "position IS NOT NULL AND NOT (raw_hash IS NULL AND contains(codes, '_too_large'))"
"""SQL that is true if a dead letter has the bytes of a unit."""

# Rows that are not in the ledger may belong to a micro-batch that is being appended. If they are this young, wait.
_YOUNG_SECONDS = 600.0
_WAIT_SECONDS = 15.0
_LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class Account:
    """Counts of a source's rows in bronze and the dead letters."""

    rows: int = 0  # in both tables
    bronze: int = 0
    positions: int = 0  # number of distinct positions
    first: int | None = None  # lowest position
    last: int | None = None  # highest position
    dead: Mapping[str, int] = field(default_factory=dict)  # dead letters by set of reasons, joined by ``+``
    rescued: int = 0  # number of values in ``_rescued`` of bronze
    ingested_at: float | None = None  # when the newest row was judged, in seconds since 1970

    @property
    def by_reference(self) -> bool:
        """Whether the batch was too large to read, and is one dead letter without its bytes."""
        return Reason.BATCH_TOO_LARGE in self.dead

    def is_exactly(self, units: int) -> bool:
        """Return whether the positions are exactly 0 to ``units - 1``, each once."""
        span = (0, units - 1) if units else (None, None)
        return self.rows == self.positions == units and (self.first, self.last) == span


@dataclass(frozen=True)
class Booking:
    """The ledger's row of a source; `rows` is the number of its rows in the ledger."""

    rows: int
    size: int
    etag: str
    units: int
    bronze: int
    dead: Mapping[str, int]
    rescued: int = 0
    discarded: int = 0
    content_hash: str | None = None
    micro_batch: int | None = None


def difference(booking: Booking, account: Account) -> str:
    """Return the differences between ledger and tables as text; empty if they agree."""
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


class Settling(Protocol):
    """An object that reads tables and ledger."""

    def load(self) -> float | None:
        """Read the ledger, then the tables; return when the newest row that is not in the ledger was judged."""


def settle(tables: Settling) -> None:
    """Read tables and ledger until no row outside the ledger is young, or until a timeout after the first look.

    A micro-batch is appended to bronze, then to the dead letters, then to the ledger. Reading in reverse order finds
    all rows of each source in the ledger.
    """
    newest, patience = tables.load(), monotonic() + _WAIT_SECONDS
    while newest is not None and time() - newest <= _YOUNG_SECONDS and monotonic() < patience:
        sleep(_LOOK_AGAIN_SECONDS)
        newest = tables.load()


def sampled_rows(
    session: Session,
    bronze: str,
    columns: Sequence[str],
    where: str,
    parameters: Sequence[object] = (),
    some: int | None = None,
) -> "pa.Table":
    """Return rows of bronze: `columns`, ``_source``, ``_position``, ``_contract_version``, and ``_rescued`` if any.

    These are all rows that meet a condition, or a random sample of `some` rows.
    """
    names = ", ".join(map(identifier, value_columns(session, bronze, columns)))
    sample = "" if some is None else f" USING SAMPLE reservoir({some} ROWS)"
    with session.errors():
        return session.connection.execute(
            f"SELECT * FROM (SELECT {names} FROM {bronze} WHERE {where}){sample}",
            parameters,
        ).to_arrow_table()


def value_columns(session: Session, bronze: str, columns: Sequence[str]) -> list[str]:
    """Return the names of the columns that a :class:`reader.verify.landed.values.Sample` needs."""
    more = (RESCUED,) * (RESCUED in session.columns(bronze))
    return [*columns, *more, SOURCE, POSITION, CONTRACT_VERSION]
