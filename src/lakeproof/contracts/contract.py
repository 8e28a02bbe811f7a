"""A contract: a stream's fields, keys and rules."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakeproof.contracts.maintenance import AS_SET, Maintenance
from lakeproof.contracts.model import (
    DEFAULT_BREAKER,
    DEFAULT_LANDING,
    Breaker,
    DriftPolicy,
    Field,
    Landing,
    ObjectType,
    Retention,
    Silver,
    current,
    live,
)
from lakeproof.contracts.rules.expression import Rule


@dataclass(frozen=True)
class Contract:
    """The contract of a stream."""

    stream: str  # also the name of its tables
    version: str  # as in the file
    digest: str  # SHA-256 of the file's bytes: identifies the exact text that judged a record
    # The fields of the tables, in the order of the columns. Records have only the :attr:`live` ones.
    fields: tuple[Field, ...]
    primary_key: tuple[str, ...]  # empty if nothing identifies a record
    # A field, or a path like ``event.timestamp``. The tables are partitioned by its day.
    event_time: str
    rules: tuple[Rule, ...] = ()
    # How to handle unknown fields, and values that do not fit where null is allowed.
    drift: DriftPolicy = DriftPolicy.FREEZE
    # None if the stream cannot have silver, see :attr:`no_silver`.
    silver: Silver | None = None
    breaker: Breaker = DEFAULT_BREAKER  # when too many units are bad
    retention: Retention | None = None  # None removes nothing
    maintenance: Maintenance = AS_SET  # of the tables; overrides the settings
    landing: Landing = DEFAULT_LANDING

    @property
    def no_silver(self) -> str:
        """Why the stream has no silver; empty if it has one."""
        if self.silver:
            return ""
        optional = [field.name for field in self.fields if field.name in self.primary_key and not field.required]
        return f"optional fields in its primary key: {', '.join(optional)}" if optional else "it has no primary key"

    @property
    def live(self) -> tuple[Field, ...]:
        """Fields that records may have: not derived and not dropped."""
        return live(self.fields)

    @property
    def current(self) -> tuple[Field, ...]:
        """Fields with values in new rows: live and derived ones."""
        return current(self.fields)

    @property
    def derived(self) -> tuple[Field, ...]:
        """Derived fields."""
        return tuple(field for field in self.fields if field.derived and not field.dropped)

    @property
    def deprecated(self) -> tuple[str, ...]:
        """Paths of deprecated fields, also within objects: ``event.page``."""
        return tuple(_deprecated(self.live, ""))

    def deprecated_in(self, paths: Iterable[str]) -> list[str]:
        """Return the deprecated fields that equal or contain one of `paths`."""
        return [each for each in self.deprecated if any(f"{path}.".startswith(f"{each}.") for path in paths)]

    @property
    def renamed(self) -> dict[str, str]:
        """Current names of renamed fields, by former name."""
        return {name: field.name for field in self.fields for name in field.former_names}

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)


def _deprecated(fields: Iterable[Field], within: str) -> Iterator[str]:
    for field in fields:
        if field.deprecated:
            yield within + field.name
        elif isinstance(field.type, ObjectType):
            yield from _deprecated(field.type.fields, f"{within}{field.name}.")
