"""Model of a contract: frozen values that can be compared and pickled."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum


class DriftPolicy(StrEnum):
    """How to handle unknown fields, and values that do not fit where null is allowed."""

    FREEZE = "freeze"  # the record is a dead letter
    RESCUE = "rescue"  # the record goes to bronze; what did not fit is kept in ``_rescued``
    DISCARD = "discard"  # the record goes to bronze; what did not fit is counted and dropped


class SilverStrategy(StrEnum):
    """How silver finds earlier records of a key. All strategies give the same verdicts."""

    MERGE = "merge"  # compare with the rows of silver
    STATE = "state"  # keep the keys in the state of the query


@dataclass(frozen=True)
class Silver:
    """How silver gets one row per primary key."""

    # How much older than the newest event a record may be; None for any age.
    horizon: timedelta | None
    strategy: SilverStrategy  # how earlier records of a key are found


class BreakerAction(StrEnum):
    """What to do when too many units are bad."""

    WARN = "warn"  # commit them, and say so
    PAUSE = "pause"  # stop before anything of the micro-batch is committed


@dataclass(frozen=True)
class Breaker:
    """When too many units of a stream are bad, and what to do then."""

    share: Decimal = Decimal("0.25")  # smallest share of bad units that is too many
    units: int = 200  # fewer units than this never trip the breaker
    # All units of this time are also counted together; None to count only single micro-batches.
    over: timedelta | None = timedelta(hours=1)
    action: BreakerAction = BreakerAction.WARN

    def trips(self, bad: int, units: int) -> bool:
        """Whether too many of some units are bad."""
        return units >= self.units and bad >= self.share * units


DEFAULT_BREAKER = Breaker()


class Removable(StrEnum):
    """What retention removes; the names are fields of :class:`Retention`."""

    LANDED = "landed"
    DEAD_LETTERS = "dead_letters"
    CONFLICTS = "conflicts"
    LATE = "late"


@dataclass(frozen=True)
class Retention:
    """How long a stream keeps landed files, closed dead letters, conflicts and late rows."""

    landed: timedelta | None = None  # landed files; None, here and below, keeps them forever
    archive: str | None = None  # folder or address where landed files are copied before removal
    dead_letters: timedelta | None = None  # dead letters that a replay has closed
    conflicts: timedelta | None = None  # rows of silver's table of conflicts
    late: timedelta | None = None  # rows of silver's table of late rows

    def age_of(self, what: Removable) -> timedelta | None:
        """How old something is before it is removed; None if it is kept."""
        age: timedelta | None = getattr(self, what)
        return age


@dataclass(frozen=True)
class Landing:
    """Where the files of a stream land, and which of them are read."""

    location: str | None = None  # folder or address; None for the one below LAKE_LANDING
    endpoint_url: str | None = None  # of the location's S3 server
    include: tuple[str, ...] = ()  # globs; empty for all files
    exclude: tuple[str, ...] = ()


DEFAULT_LANDING = Landing()


class PrimitiveType(StrEnum):
    """Type of a JSON scalar and of its column.

    ``scalar`` is any JSON scalar, kept as text: the value of a string, or a number or boolean as landed.
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
    """An exact number: ``precision`` digits, ``scale`` of them after the decimal point."""

    precision: int
    scale: int


@dataclass(frozen=True)
class MapType:
    """A JSON object with arbitrary keys and values of one type."""

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
    """Name of a type, without nested types."""
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
    """Format of a timestamp in a contract. Seconds are optional in text, with up to 9 decimals."""

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
        """Units per second; None for text."""
        return {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000}.get(self.value)


@dataclass(frozen=True)
class TimeForm:
    """Format of the timestamps of a field."""

    format: TimeFormat = TimeFormat.T_OFFSET
    zone: str = "UTC"  # IANA name of the time zone of values without a UTC offset; ``UTC`` where each value has one

    def __str__(self) -> str:
        return f"{self.format} in {self.zone}" if self.format.may_lack_offset else self.format


ISO_8601 = TimeForm()  # default format of timestamps


@dataclass(frozen=True)
class Bound:
    """A limit of a range."""

    # By the field's type: an int (int, long), a float (float, double), a Decimal, a date, or a datetime in UTC.
    value: int | float | Decimal | date
    exclusive: bool = False  # always False for int and long


@dataclass(frozen=True)
class Constraints:
    """Limits of a value besides its type; false without any limit."""

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
    """Source of a derived field."""

    CORRELATION = "correlationId"
    """Text that identifies an event and all its copies, see :mod:`lakeproof.kafka.correlation`."""
    SCHEMA = "schemaId"  # id of the contract in the schema registry; null without a registry
    INGESTION = "ingestionTimestamp"  # time when the micro-batch was judged


@dataclass(frozen=True)
class Derived:
    """How a derived field is computed."""

    source: DerivedFrom
    # For correlation ids: identifies events that were sent without an idempotency key.
    field: str = ""

    def __str__(self) -> str:
        return f"{self.source}({self.field})" if self.field else self.source


@dataclass(frozen=True)
class Expected:
    """Range of normal values. Values outside are anomalies, but valid."""

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
    """A field of a record, or one that is derived at ingestion."""

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
        """The oldest name of the field."""
        return self.former_names[0] if self.former_names else self.name


def live(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Fields that records may have: not derived, and not dropped at any depth."""
    return tuple(field for field in current(fields) if not field.derived)


def current(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Fields with values in new rows: not dropped at any depth."""
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
