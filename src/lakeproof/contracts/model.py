"""What a contract says, as frozen values that every program can carry, compare and pickle."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum


class DriftPolicy(StrEnum):
    """What becomes of unknown fields, and of values that do not fit where null is allowed."""

    FREEZE = "freeze"
    """The record is a dead letter."""
    RESCUE = "rescue"
    """The record goes to bronze; what did not fit is kept as it landed, beside the columns."""
    DISCARD = "discard"
    """The record goes to bronze; what did not fit is counted, and goes."""


class SilverStrategy(StrEnum):
    """How silver finds the earlier record of a key. The verdicts are the same."""

    MERGE = "merge"
    """It compares with the rows of silver."""
    STATE = "state"
    """It keeps the keys in the state of the query."""


@dataclass(frozen=True)
class Silver:
    """How a stream's records become one row per primary key."""

    # How much older than the newest event a record may be; None for any age.
    horizon: timedelta | None
    strategy: SilverStrategy  # how earlier records of a key are found


class PrimitiveType(StrEnum):
    """A JSON scalar and the column that keeps it.

    ``scalar`` is any JSON scalar, kept as text: a string's value, or a number's or boolean's characters as landed.
    """

    STRING = "string"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    TIMESTAMP = "timestamp"
    DATE = "date"
    SCALAR = "scalar"


@dataclass(frozen=True)
class DecimalType:
    """A number kept exactly: ``precision`` digits in all, ``scale`` of them behind the point."""

    precision: int
    scale: int


@dataclass(frozen=True)
class MapType:
    """A JSON object of any keys whose values have one type."""

    value: "Type"


@dataclass(frozen=True)
class ListType:
    """A JSON array whose items have one type."""

    item: "Type"


@dataclass(frozen=True)
class ObjectType:
    """A JSON object of known fields."""

    fields: tuple["Field", ...]


Type = PrimitiveType | DecimalType | MapType | ListType | ObjectType


def type_name(kind: Type) -> str:
    """What a type is called, without what is within it."""
    match kind:
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case PrimitiveType():
            return kind.value
        case ObjectType():
            return "object"
        case ListType():
            return "array"
        case MapType():
            return "map"


class TimeFormat(StrEnum):
    """How a timestamp is written, as the pattern of a contract. Text has optional seconds, with up to 9 decimals."""

    T_OFFSET = "yyyy-MM-dd'T'HH:mm:ssXXX"
    T_LOCAL = "yyyy-MM-dd'T'HH:mm:ss"
    T_ANY = "yyyy-MM-dd'T'HH:mm:ss[XXX]"
    SPACE_OFFSET = "yyyy-MM-dd HH:mm:ssXXX"
    SPACE_LOCAL = "yyyy-MM-dd HH:mm:ss"
    SPACE_ANY = "yyyy-MM-dd HH:mm:ss[XXX]"
    DATE = "yyyy-MM-dd"
    EPOCH_S = "epoch_s"
    EPOCH_MS = "epoch_ms"
    EPOCH_US = "epoch_us"

    @property
    def has_offset(self) -> bool:
        """Whether every value has a UTC offset."""
        return self.endswith("XXX")

    @property
    def may_lack_offset(self) -> bool:
        """Whether a value may be a local time, or a date."""
        return self.startswith("yyyy") and not self.has_offset

    @property
    def per_second(self) -> int | None:
        """How many of its units a second has; None for text."""
        return {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000}.get(self.value)


@dataclass(frozen=True)
class TimeForm:
    """How the timestamps of a field are written."""

    format: TimeFormat = TimeFormat.T_OFFSET
    zone: str = "UTC"  # IANA name of the time zone of values without a UTC offset; ``UTC`` where each value has one

    def __str__(self) -> str:
        return f"{self.format} in {self.zone}" if self.format.may_lack_offset else self.format


ISO_8601 = TimeForm()
"""How timestamps are written by default."""


@dataclass(frozen=True)
class Bound:
    """An end of a range."""

    # By the field's type: an int (int, long), a float (float, double), a Decimal, a date, or a datetime in UTC.
    value: int | float | Decimal | date
    exclusive: bool = False  # always False for int and long


@dataclass(frozen=True)
class Constraints:
    """What a value must meet beside its type; false if that is nothing."""

    minimum: Bound | None = None
    maximum: Bound | None = None
    # Unicode code points.
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    def __bool__(self) -> bool:
        return self != _UNCONSTRAINED


_UNCONSTRAINED = Constraints()


class DerivedFrom(StrEnum):
    """What the value of a derived field is made of."""

    CORRELATION = "correlationId"
    """Text that identifies an event, the same for each copy of it; see :mod:`lakeproof.kafka.correlation`."""
    SCHEMA = "schemaId"
    """The id of the contract in the schema registry; null without a registry."""
    INGESTION = "ingestionTimestamp"
    """When the micro-batch was judged."""


@dataclass(frozen=True)
class Derived:
    """How the value of a derived field is found."""

    source: DerivedFrom
    # For correlation ids: identifies events that were sent without an idempotency key.
    field: str = ""

    def __str__(self) -> str:
        return f"{self.source}({self.field})" if self.field else self.source


@dataclass(frozen=True)
class Expected:
    """The range of values that are not anomalies. A value outside of it is data, as every other one."""

    # Inclusive; None for no limit.
    minimum: Decimal | None = None
    maximum: Decimal | None = None

    def __bool__(self) -> bool:
        return self != _ANY

    def __str__(self) -> str:
        ends = (("below", self.minimum), ("above", self.maximum))
        return " and ".join(f"{word} {end:f}" for word, end in ends if end is not None) or "none"


_ANY = Expected()


@dataclass(frozen=True)
class Field:
    """A named value in a record, or one that is derived when a record is ingested."""

    name: str  # name in JSON, and of the column
    type: Type
    required: bool = False  # present and not null
    allowed: tuple[str, ...] = ()  # allowed values; empty for any
    description: str = ""  # becomes the column's comment
    constraints: Constraints = _UNCONSTRAINED  # limits besides the type
    deprecated: bool = False  # will be dropped; records may still have it
    # Records must not have it; its column stays, with the values of older rows.
    dropped: bool = False
    former_names: tuple[str, ...] = ()  # oldest first
    # How the value is derived; records must not have it then.
    derived: Derived | None = None
    # Numbers outside are anomalies; nothing is rejected.
    expected: Expected = _ANY
    time: TimeForm = ISO_8601

    @property
    def first_name(self) -> str:
        """The name that it had first, which no renaming changes."""
        return self.former_names[0] if self.former_names else self.name


def live(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Fields that records may have: without derived ones, and those that were dropped, at any depth."""
    return tuple(field for field in current(fields) if not field.derived)


def current(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Fields whose columns have values in new rows: without those that were dropped, at any depth."""
    return tuple(replace(field, type=_live(field.type)) for field in fields if not field.dropped)


def _live(kind: Type) -> Type:
    match kind:
        case ObjectType():
            return ObjectType(live(kind.fields))
        case ListType():
            return ListType(_live(kind.item))
        case MapType():
            return MapType(_live(kind.value))
        case _:
            return kind
