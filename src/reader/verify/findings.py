"""What checks find: faults of sources and tables, and the statuses of sources without a fault."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

SHOWN_EXAMPLES = 5


class Status(StrEnum):
    """Status of a source. If several apply, the first member counts."""

    LOST = "lost"  # a landed unit is in no table, or the ledger has no row for the source
    DOUBLED = "doubled"  # a row has no unit: its position is duplicate or does not exist, or its source never landed
    CHANGED = "changed"  # the file was overwritten, or the tables or the ledger differ from the landed bytes
    ERASED = "erased"  # units were erased and are in the account of removals; tables and ledger agree
    EXPIRED = "expired"  # the file was removed; tables and ledger agree
    PENDING = "pending"  # landed, but not consumed yet
    OK = "ok"  # each landed unit is in exactly one table, once, and the ledger agrees


_NO_FAULTS = (Status.ERASED, Status.EXPIRED, Status.PENDING, Status.OK)


@dataclass(frozen=True)
class Finding:
    """A fault of a source or of rows of a table, or the status of a source without a fault."""

    place: str  # name of the source or of the table
    what: str  # status of the source, or the kind of fault
    rows: int = 0  # number of rows with the fault; for a partition without one, number of offsets not consumed yet
    details: tuple[str, ...] = ()  # explanations or examples

    @property
    def is_fault(self) -> bool:
        """Whether the finding is a fault."""
        return self.what not in _NO_FAULTS


@dataclass
class Findings:
    """Collects findings of tables, with the first examples of each kind."""

    _rows: dict[tuple[str, str], int] = field(default_factory=dict)
    _examples: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, table: str, what: str, rows: int, examples: Sequence[str]) -> None:
        """Add a number of rows of a table with the same kind of fault, and examples."""
        kind = (table, what)
        self._rows[kind] = self._rows.get(kind, 0) + rows
        found = self._examples.setdefault(kind, [])
        found += examples[: SHOWN_EXAMPLES - len(found)]

    def whole(self) -> tuple[Finding, ...]:
        """Return all findings, sorted by table."""
        return tuple(Finding(*kind, rows, tuple(self._examples[kind])) for kind, rows in sorted(self._rows.items()))
