"""Content of the page for a stream and the lake: plain data that templates render."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from lakeproof.state.proofs import Proof
from reader.dead_letters.places import Excerpt
from reader.plot.series import Plot
from reader.tables import TableFacts


@dataclass(frozen=True)
class Number:
    """A number, and the SQL of the rows that it counts."""

    key: str  # unique within the stream
    what: str
    value: int
    rows: str
    counted: str = "count(*)"  # aggregate of these rows that gives the number


class Level(StrEnum):
    """Severity of a problem."""

    WRONG = "wrong"
    NOTE = "note"


@dataclass(frozen=True)
class Problem:
    """A message for the operator."""

    text: str
    since: datetime | None = None
    level: Level = Level.WRONG


@dataclass(frozen=True)
class Ledger:
    """Totals of the ledgers of a stream."""

    landed: int = 0  # units
    bronze: int = 0  # rows, including those of replays
    letters: int = 0  # dead letters, including those that replays left
    closed: int = 0
    replayed: int = 0  # rows that replays added to bronze
    left: int = 0  # dead letters for the rest of replayed batches
    sources: int = 0
    bytes: int = 0
    newest: int | None = None  # micro-batch
    first_landed: datetime | None = None
    last_landed: datetime | None = None
    last_judged: datetime | None = None
    kept: int = 0
    duplicates: int = 0
    conflicts: int = 0
    late: int = 0
    erased: int = 0  # rows of bronze and dead letters, not included in the other numbers
    is_erasing: bool = False  # whether an erasure is unfinished

    @property
    def open(self) -> int:
        """Dead letters that no replay closed."""
        return self.letters - self.closed

    @property
    def undecided(self) -> int:
        """Rows of bronze without a verdict."""
        return self.bronze - self.kept - self.duplicates - self.conflicts - self.late


@dataclass(frozen=True)
class Hour:
    """Units that landed within an hour, the dead letters among them, and the verdicts on the others."""

    begin: datetime
    units: int
    letters: int
    duplicates: int
    conflicts: int
    late: int


@dataclass(frozen=True)
class Reasons:
    """Dead letters with a set of reasons, and one of the newest as an example."""

    codes: str  # joined by ``+``
    letters: int
    hours: Sequence[tuple[datetime, int]]
    detail: str = ""
    path: str = ""
    source: str = ""
    position: int | None = None
    size: int | None = None  # bytes; None if they were not kept
    excerpt: Excerpt | None = None
    after_replay: str | None = None  # reasons that a replay would find; empty for a good record, None if unknown


@dataclass(frozen=True)
class FieldRow:
    """A field of the contract compared with the column of bronze."""

    name: str
    type: str
    required: bool
    column: str  # type of the column; empty if it does not exist
    differs: bool
    description: str


@dataclass(frozen=True)
class ContractFacts:
    """The contract compared with the tables."""

    version: str
    applied: str  # version that was applied last; empty if none was applied
    is_applied: bool
    drift: str  # the policy
    drifted: Sequence[tuple[str, str, int]]  # rescued or discarded, reasons, values
    fields: Sequence[FieldRow]


@dataclass(frozen=True)
class LayerRow:
    """Freshness of a layer."""

    layer: str
    table: str
    last_commit: datetime | None
    behind: str  # in words
    waiting_since: datetime | None = None


@dataclass(frozen=True)
class MicroBatchRow:
    """A micro-batch: its numbers of rows, and when it reached each table."""

    number: int
    sources: int
    bytes: int
    units: int
    bronze: int
    letters: int
    kept: int | None
    landed_at: datetime | None
    judged_at: datetime | None
    committed_at: datetime | None
    decided_at: datetime | None
    is_replay: bool


@dataclass(frozen=True)
class Growth:
    """A table, and its growth in the day up to its newest snapshot."""

    facts: TableFacts
    rows: int
    files: int
    bytes: int
    snapshots: int


@dataclass(frozen=True)
class ProductFacts:
    """A data product, and its plot if it has one."""

    name: str
    table: str
    description: str
    windows: Number | None  # None if the table does not exist
    plot: Plot | None = None
    numbers: Sequence[Number] = ()
    anomalies: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True)
class StreamPage:
    """Content of the page for a stream."""

    name: str
    problems: Sequence[Problem]
    source: str  # description of the source
    what: str  # file or message
    ledger: Ledger = Ledger()
    numbers: Mapping[str, Number] = field(default_factory=dict)
    products: Sequence[ProductFacts] = ()
    reasons: Sequence[Reasons] = ()
    more_reasons: int = 0
    hours: Sequence[Hour] = ()
    contract: ContractFacts | None = None
    layers: Sequence[LayerRow] = ()
    proof: Proof | None = None
    unproven: int = 0  # micro-batches since the last proof
    tables: Sequence[Growth] = ()
    micro_batches: Sequence[MicroBatchRow] = ()
    key: str = ""  # field for finding an event

    @property
    def wrong(self) -> Sequence[Problem]:
        """The problems without notes."""
        return [each for each in self.problems if each.level is Level.WRONG]


@dataclass(frozen=True)
class Page:
    """A page of some streams."""

    lake: str
    made_at: datetime
    seconds: float
    version: str
    streams: Sequence[StreamPage]

    @property
    def wrong(self) -> Sequence[tuple[str, Problem]]:
        """Problems without notes, each with the name of its stream."""
        return [(stream.name, problem) for stream in self.streams for problem in stream.wrong]
