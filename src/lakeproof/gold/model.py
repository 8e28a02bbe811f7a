"""What the file of a data product says, as frozen values that every program can carry, compare and pickle."""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from lakeproof.contracts.duration import duration_text
from lakeproof.contracts.model import Type
from lakeproof.contracts.rules.expression import Expression, fields_in
from lakeproof.gold.meaning import meaning

WINDOW_START = "window_start"
WINDOW_END = "window_end"


class Kind(StrEnum):
    """What a product makes of the records of a window."""

    WINDOWS = "windows"
    """One row of measures: :class:`Product`."""
    SAMPLES = "samples"
    """Some of the records: :class:`lakeproof.gold.samples.Samples`."""


class Publish(StrEnum):
    """When the row of a window is published."""

    UPDATES = "updates"
    """As soon as it has a record, and again when a record changes it."""
    FINAL = "final"
    """Once, after the horizon has passed its end: then silver keeps no record of it any more."""


class SinkKind(StrEnum):
    """Where rows are published."""

    TABLE = "table"
    """The table of the product. The others follow it."""
    KAFKA = "kafka"
    """A topic of Kafka."""
    PARQUET = "parquet"
    """Parquet files, each window in one of them once."""


@dataclass(frozen=True)
class Sink:
    """Where the rows of a product are published."""

    kind: SinkKind
    topic: str = ""  # empty for tables and files


class Aggregate(StrEnum):
    """What is made of the values of an argument. As in SQL, null is not a value."""

    COUNT = "count"
    """How many values; without an argument, how many records."""
    COUNT_DISTINCT = "count_distinct"
    SUM = "sum"
    """Null if there is no value."""
    MIN = "min"
    """Null if there is no value. The order is that of the operator LESS."""
    MAX = "max"
    MIN_BY = "min_by"
    """MIN of the values in the records with the least order. Null is a value here, and the greatest one."""
    MAX_BY = "max_by"
    """MAX of the values in the records with the greatest order. Null is a value here, and the least one."""


@dataclass(frozen=True)
class Window:
    """Intervals of event time, with their start and without their end. One of them starts at 1970-01-01T00:00:00Z.

    Or sessions: each record opens a window of its own at its event time, and windows of the same keys that overlap are
    one. So a session ends when there is no record for the length of the size.
    """

    size: timedelta  # of sessions: the gap after which a session ends
    # Distance of starts: equal to the size, or a divisor of it if windows overlap.
    every: timedelta
    session: bool = False

    def __str__(self) -> str:
        if self.session:
            return f"session with a gap of {duration_text(self.size)}"
        sliding = "" if self.every == self.size else f" every {duration_text(self.every)}"
        return duration_text(self.size) + sliding


@dataclass(frozen=True)
class Key:
    """A field that the records of a window are grouped by."""

    path: tuple[str, ...]  # names of the enclosing objects, then its own
    type: Type
    description: str

    @property
    def name(self) -> str:
        """Name of the column: that of the field."""
        return self.path[-1]

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True)
class Measure:
    """A column of a product that is computed from the records of a window."""

    name: str
    aggregate: Aggregate
    # One value per record; None to count records. Written so that engines agree on the result: integers in a sum are
    # converted to decimals, and a double in a minimum or maximum has no negative zero.
    argument: Expression | None
    # Of the result; an engine's own type is converted to it.
    type: Type
    # Of MIN_BY and MAX_BY: the order of records; those where it is null are ignored.
    order: Expression | None = None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Everything that it computes of a record."""
        return tuple(each for each in (self.argument, self.order) if each)


@dataclass(frozen=True)
class Product:
    """A data product: a table with one row for each window and each combination of keys that has a record in it."""

    name: str  # also the name of its table
    stream: str
    description: str
    # Null is a key of its own.
    keys: tuple[Key, ...]
    window: Window
    measures: tuple[Measure, ...]
    publish: Publish
    sinks: tuple[Sink, ...]
    text: bytes = field(default=b"", compare=False, repr=False)

    @property
    def fields(self) -> set[str]:
        """Paths of the fields that it uses."""
        of_measures = (fields_in(each) for measure in self.measures for each in measure.expressions)
        return {str(key) for key in self.keys}.union(*of_measures)

    @property
    def digest(self) -> str:
        """SHA-256 in hexadecimal of everything that the rows depend on.

        Spelling and descriptions make no difference, and neither do types: a field that gets a wider type keeps its
        values.
        """
        says = {
            "name": self.name,
            "stream": self.stream,
            "keys": [str(key) for key in self.keys],
            "window": [int(length.total_seconds()) for length in (self.window.size, self.window.every)]
            + ["session"] * self.window.session,
            "measures": [
                [measure.name, measure.aggregate, measure.argument and meaning(measure.argument)]
                + [meaning(each) for each in (measure.order,) if each]
                for measure in self.measures
            ],
            "publish": self.publish,
        }
        return hashlib.sha256(json.dumps(says, sort_keys=True).encode()).hexdigest()
