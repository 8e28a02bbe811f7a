"""What a task of a replay gets, and what it returns."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from consumer.iceberg.data_files import DataFile, Target
from consumer.layers.bronze.ledger import Drift, MicroBatch, Outcome, Sums
from consumer.layers.bronze.transform import Transform
from consumer.sources.source import Reader
from lakeproof.install.judges import JudgeName
from lakeproof.judge.judged import Fault
from lakeproof.settings import Limits, S3Settings
from lakeproof.tables.names import ReplayOutcome

TRIED = "tried"
"""Column of the letters: their newest attempt, or null."""
TRANSFORMED = "transformed"
"""Column of the letters: their bytes after a transform in SQL, or as an interrupted replay judged them, or null."""
ETAG = "etag"
"""Column of the letters without bytes: the storage's tag of the landed file."""
EXAMPLES = 3
"""Number of dead letters that are shown for each outcome."""


@dataclass(frozen=True)
class ReplayTask:
    """Parameters of a task, in addition to its dead letters."""

    batch: MicroBatch
    number: int  # of the replay
    reader: Reader[Any]  # reads units that are too large for a dead letter
    s3: S3Settings
    limits: Limits
    judge: JudgeName
    of_topic: bool  # whether the stream comes from Kafka
    max_attempts: int = 3
    salvage: bool = False
    transform: Transform | None = None
    attempts: Target | None = None  # where to write data files; None for a table that already has the micro-batch
    bronze: Target | None = None
    dead_letters: Target | None = None
    is_repeated: bool = False  # whether the letters have the recorded outcomes of an interrupted replay


@dataclass(frozen=True)
class LetterExample:
    """A dead letter, for people."""

    source: str
    position: int
    raw: bytes  # its first bytes
    reasons: list[Fault]  # why it failed; empty if it did not


Fate = tuple[str, ReplayOutcome, str]
"""The set of reasons of a dead letter, its outcome, and the set of reasons for the outcome."""


@dataclass
class Replayed:
    """Results of judging dead letters, before they are committed."""

    attempts: list[DataFile] = field(default_factory=list)
    bronze: list[DataFile] = field(default_factory=list)
    dead_letters: list[DataFile] = field(default_factory=list)
    outcomes: Counter[Outcome] = field(default_factory=Counter)  # of units, by the ledger's name for their part
    drift: Counter[Drift] = field(default_factory=Counter)
    closed: Counter[tuple[str, str]] = field(default_factory=Counter)  # by part and former set of reasons
    parts: dict[str, str] = field(default_factory=dict)  # the smallest source of each part
    fates: Counter[Fate] = field(default_factory=Counter)
    examples: dict[Fate, list[LetterExample]] = field(default_factory=dict)
    sums: Sums = field(default_factory=Sums)  # hashes of the rows in the data files of bronze and dead letters

    @property
    def letters(self) -> int:
        """Number of dead letters."""
        return self.fates.total()

    def add(self, other: "Replayed") -> None:
        """Add the results of another task."""
        self.attempts += other.attempts
        self.bronze += other.bronze
        self.dead_letters += other.dead_letters
        for mine, theirs in ((self.outcomes, other.outcomes), (self.drift, other.drift), (self.closed, other.closed)):
            mine.update(theirs)  # type: ignore[arg-type]  # counters of the same kind
        self.fates.update(other.fates)
        self.sums.add(other.sums)
        for part, source in other.parts.items():
            self.parts[part] = min(source, self.parts.get(part, source))
        for fate, examples in other.examples.items():
            self.examples[fate] = (self.examples.get(fate, []) + examples)[:EXAMPLES]
