"""Model of a data product: frozen values that can be compared and pickled."""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from lakeproof.contracts.duration import duration_text
from lakeproof.contracts.maintenance import AS_SET, Maintenance
from lakeproof.contracts.model import Type
from lakeproof.contracts.rules.expression import Expression, fields_in
from lakeproof.gold.meaning import meaning

WINDOW_START = "window_start"
WINDOW_END = "window_end"
WINDOW_DAY = f"{WINDOW_START}_day"  # name of the partition of the tables, which no column can have


class Kind(StrEnum):
    """Kind of a data product."""

    WINDOWS = "windows"  # one row of measures per window: :class:`Product`
    SAMPLES = "samples"  # selected records per window: :class:`lakeproof.gold.samples.Samples`


class Publish(StrEnum):
    """When the row of a window is published."""

    UPDATES = "updates"  # with the first record, and after each change
    FINAL = "final"  # once, when the horizon has passed the window's end and silver accepts no more of its records


class SinkKind(StrEnum):
    """Where rows are published."""

    TABLE = "table"  # the table of the product, which the others follow
    KAFKA = "kafka"  # a topic of Kafka
    PARQUET = "parquet"  # Parquet files that contain each window once


@dataclass(frozen=True)
class Sink:
    """Where the rows of a product are published."""

    kind: SinkKind
    topic: str = ""  # empty for tables and files


class Aggregate(StrEnum):
    """Aggregate functions. As in SQL, they ignore null."""

    COUNT = "count"  # number of values, or of records if there is no argument
    COUNT_DISTINCT = "count_distinct"
    SUM = "sum"  # null if there is no value
    MIN = "min"  # null if there is no value; ordered as by the operator LESS
    MAX = "max"
    MIN_BY = "min_by"  # MIN of the values in the records with the lowest order; null counts as the greatest value
    MAX_BY = "max_by"  # MAX of the values in the records with the highest order; null counts as the lowest value


@dataclass(frozen=True)
class Window:
    """Half-open intervals of event time, aligned to 1970-01-01T00:00:00Z, or sessions.

    A session ends when its keys have no record for the time `size`.
    """

    size: timedelta  # of sessions: the gap after which a session ends
    # Distance between starts: equal to the size, or a divisor of the size if windows overlap.
    every: timedelta
    session: bool = False

    @property
    def overlap(self) -> int:
        """Number of windows that contain a row."""
        return 1 if self.session else self.size // self.every

    def __str__(self) -> str:
        if self.session:
            return f"session with a gap of {duration_text(self.size)}"
        sliding = "" if self.every == self.size else f" every {duration_text(self.every)}"
        return duration_text(self.size) + sliding


@dataclass(frozen=True)
class Key:
    """A field by which the records of a window are grouped."""

    path: tuple[str, ...]  # names of the enclosing objects, then of the field
    type: Type
    description: str

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.path[-1]

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True)
class Measure:
    """A column that aggregates the records of a window."""

    name: str
    aggregate: Aggregate
    # One value per record; None to count records. Written so that engines agree on the result: integers in a sum are
    # converted to decimals, and a double in a minimum or maximum has no negative zero.
    argument: Expression | None
    # The type of the result; other types of engines are converted to this type.
    type: Type
    # The order of records for MIN_BY and MAX_BY; records where it is null are ignored.
    order: Expression | None = None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions that are evaluated for a record."""
        return tuple(each for each in (self.argument, self.order) if each)


@dataclass(frozen=True)
class Product:
    """A data product: a table with one row per window and combination of keys."""

    name: str  # also the name of its table
    stream: str
    description: str
    # Null is a separate key.
    keys: tuple[Key, ...]
    window: Window
    measures: tuple[Measure, ...]
    publish: Publish
    sinks: tuple[Sink, ...]
    maintenance: Maintenance = AS_SET  # of its table; overrides the settings
    text: bytes = field(default=b"", compare=False, repr=False)

    @property
    def fields(self) -> set[str]:
        """Paths of the fields in use."""
        of_measures = (fields_in(each) for measure in self.measures for each in measure.expressions)
        return {str(key) for key in self.keys}.union(*of_measures)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the rows.

        Spelling, descriptions and types make no difference: a wider type keeps all values.
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
