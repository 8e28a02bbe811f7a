"""What the tables and the ledger say of a source, and in what they differ; SQL that files and topics share."""

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
    """SQL of the set of reasons of a dead letter."""
    return f"coalesce(array_to_string(list_sort(list_distinct([reason.code FOR reason IN {reasons}])), '+'), '')"


CODES = codes_of(REASONS)
HAS_BYTES = "position IS NOT NULL AND NOT (raw_hash IS NULL AND contains(codes, '_too_large'))"
"""SQL of whether a dead letter has the bytes of a unit."""

# Rows that the ledger lacks may be those of a micro-batch that is being appended: if they are that young, wait.
_YOUNG_SECONDS = 600.0
_WAIT_SECONDS = 15.0
_LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class Account:
    """What the tables hold of a source."""

    rows: int = 0  # in both tables
    bronze: int = 0
    positions: int = 0  # distinct ones
    first: int | None = None  # the least position
    last: int | None = None
    dead: Mapping[str, int] = field(default_factory=dict)  # by set of reasons, joined by ``+``
    rescued: int = 0  # values that are kept beside the columns of bronze
    ingested_at: float | None = None  # when the newest of its rows was judged, in seconds since 1970

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
    micro_batch: int | None = None


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


class Settling(Protocol):
    """Reads tables and ledger."""

    def load(self) -> float | None:
        """Read the ledger, then the tables; return when the newest row beyond the ledger was judged."""


def settle(tables: Settling) -> None:
    """Read tables and ledger until no row beyond the ledger is young, or for a while.

    A micro-batch is appended to bronze, then to the dead letters, then to the ledger. Read the other way round, each
    source of the ledger has all its rows.
    """
    patience = monotonic() + _WAIT_SECONDS
    while True:
        newest = tables.load()
        if newest is None or time() - newest > _YOUNG_SECONDS or monotonic() > patience:
            return
        sleep(_LOOK_AGAIN_SECONDS)


def sampled_rows(
    session: Session,
    bronze: str,
    columns: Sequence[str],
    where: str,
    parameters: Sequence[object] = (),
    some: int | None = None,
) -> "pa.Table":
    """Rows of bronze: `columns`, ``_source``, ``_position``, ``_contract_version``, ``_rescued`` if any.

    All that meet a condition, or `some` random ones of them.
    """
    names = ", ".join(map(identifier, value_columns(session, bronze, columns)))
    sample = "" if some is None else f" USING SAMPLE reservoir({some} ROWS)"
    with session.errors():
        return session.connection.execute(
            f"SELECT * FROM (SELECT {names} FROM {bronze} WHERE {where}){sample}",  # noqa: S608
            parameters,
        ).to_arrow_table()


def value_columns(session: Session, bronze: str, columns: Sequence[str]) -> list[str]:
    """Names of the columns that a :class:`reader.verify.landed.values.Sample` needs."""
    more = (RESCUED,) * (RESCUED in session.columns(bronze))
    return [*columns, *more, SOURCE, POSITION, CONTRACT_VERSION]
