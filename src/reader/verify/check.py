"""What a check is, and what it returns. Neither the driver nor the report knows a check by name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeproof.kafka.recorded import Recorded, recorded_topic
from lakeproof.settings import Settings
from lakeproof.state.proofs import Kind, Proof
from lakeproof.tables.names import stream_tables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from reader.connect import Session
    from reader.verify.book.book import Book

SHOWN_EXAMPLES = 5

Show = Callable[[str, int, int], None]
"""Called with what is being done, and the bytes or offsets that are done and to be done; 0 and 0 if unknown."""


class Status(StrEnum):
    """What a source is. Of several, the one that is listed first counts."""

    LOST = "lost"  # a landed unit is in no table, or the ledger's row is missing
    DOUBLED = "doubled"  # a row has no unit of its own: its position comes twice or does not exist, or no source landed
    CHANGED = "changed"  # the file is not the one that was read, or the tables or the ledger differ from what landed
    ERASED = "erased"  # units were erased, and the account of removals has them; tables and ledger agree
    EXPIRED = "expired"  # the file is gone; tables and ledger agree
    PENDING = "pending"  # landed, and not consumed yet
    OK = "ok"  # each landed unit is in one table, once, and the ledger agrees


_NO_FAULTS = (Status.ERASED, Status.EXPIRED, Status.PENDING, Status.OK)


@dataclass(frozen=True)
class Finding:
    """A fault of a source or of rows of a table, or the status of a source without one."""

    place: str  # name of the source or of the table
    what: str  # status of the source, or the kind of fault
    rows: int = 0  # how many rows have the fault; of a pending partition, how many offsets are not consumed yet
    details: tuple[str, ...] = ()  # why, or examples

    @property
    def is_fault(self) -> bool:
        """Whether something is wrong."""
        return self.what not in _NO_FAULTS


@dataclass
class Findings:
    """Collects findings of tables, with the first examples of each kind."""

    _rows: dict[tuple[str, str], int] = field(default_factory=dict)
    _examples: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, table: str, what: str, rows: int, examples: Sequence[str]) -> None:
        """Add rows of a table."""
        kind = (table, what)
        self._rows[kind] = self._rows.get(kind, 0) + rows
        found = self._examples.setdefault(kind, [])
        found += examples[: SHOWN_EXAMPLES - len(found)]

    def whole(self) -> tuple[Finding, ...]:
        """All findings, by table."""
        return tuple(Finding(*kind, rows, tuple(self._examples[kind])) for kind, rows in sorted(self._rows.items()))


@dataclass(frozen=True)
class Result:
    """What a check found in a stream, or in one of its products."""

    facts: Mapping[str, Any]  # what it counted: members of the JSON report
    findings: tuple[Finding, ...] = ()  # what is wrong with sources, or with rows of tables
    problems: tuple[str, ...] = ()  # what is wrong as a whole, in words
    waiting: int = 0  # how many sources or rows have not reached the layer yet
    missing: str = ""  # name of the layer's table if it does not exist
    name: str = ""  # name of the product, by which results are sorted
    remarks: tuple[str, ...] = ()  # what else to say, in words
    warnings: tuple[str, ...] = ()

    @property
    def faults(self) -> list[Finding]:
        """The findings with which something is wrong."""
        return [finding for finding in self.findings if finding.is_fault]

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults and not self.problems


@dataclass(frozen=True)
class Section:
    """A part of the report; several checks may write to it."""

    key: str  # its member of each stream in the JSON report; empty if its facts are members of the stream itself
    # The table of its numbers: title, headings behind the name of the stream, and the rows of a result.
    title: str
    columns: tuple[str, ...]
    rows: Callable[[Result], Iterable[Sequence[str | int]]]
    faults: str  # title of the table of faults
    # What the last line says: of faults; if it is clean; of rows that are not there yet; of results that are clean, but
    # not as expected.
    wrong: str
    right: str
    pending: Callable[[Sequence[Result]], str] = lambda _: ""
    caveat: Callable[[Sequence[Result]], str] = lambda _: ""
    is_list: bool = False  # whether a stream can have several results, as it has several products
    has_problems: bool = True  # whether the JSON report has its problems


@dataclass(frozen=True)
class Scope:
    """What a check may look at: a stream of a lake."""

    settings: Settings
    session: "Session"
    stream: str
    values: bool = False  # whether to compare the values of rows of bronze with what landed
    sample: int | None = None  # of how many random ones; None for all that are read
    receipts: Path | None = None  # file of the collector's receipts
    show: Show = lambda *_: None  # told of the progress
    opened: "Book | None" = None  # the book of proofs, opened once for all checks

    @cached_property
    def book(self) -> "Book":
        """The book of proofs; by default one that nothing was proven in."""
        from reader.verify.book.book import Book

        return self.opened or Book(self.settings, self.session, self.stream, Kind.ALL)

    @cached_property
    def catalog(self) -> "Catalog":
        """The catalog of the lake."""
        from lakeproof.catalog import catalog_errors, open_catalog

        with catalog_errors():
            return open_catalog(self.settings)

    @cached_property
    def topic(self) -> Recorded | None:
        """The topic that the stream comes from; None if it comes from files."""
        return recorded_topic(self.ledger_properties())

    def ledger_properties(self) -> Mapping[str, str]:
        """Properties of the ledger, as they are now."""
        from lakeproof.catalog import catalog_errors

        with catalog_errors():
            return self.catalog.load_table(stream_tables(self.stream).ledger).properties


@dataclass(frozen=True)
class Check:
    """A check: its name, its part of the report, and the function that returns what it finds."""

    name: str
    section: Section
    run: Callable[[Scope], tuple[Result, ...]]


@dataclass(frozen=True)
class Verification:
    """What all checks found in a stream, by part of the report."""

    stream: str
    results: Mapping[Section, tuple[Result, ...]]
    proof: Proof | None = None  # as it is in the book; its number is 0 if it is not

    @property
    def faults(self) -> int:
        """How many faults and problems there are."""
        return sum(len(result.faults) + len(result.problems) for result in self._all())

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return all(result.clean for result in self._all())

    @property
    def complete(self) -> bool:
        """Whether nothing is wrong, and all layers have everything that landed."""
        return all(result.clean and not result.waiting and not result.missing for result in self._all())

    def of(self, key: str) -> tuple[Result, ...]:
        """The results of a part of the report, by its key; empty for what landed."""
        return next(results for section, results in self.results.items() if section.key == key)

    @property
    def landed(self) -> Result:
        """What was found between what landed and bronze."""
        (result,) = self.of("")
        return result

    @property
    def off(self) -> list[Finding]:
        """Sources with which something is wrong."""
        return self.landed.faults

    def _all(self) -> list[Result]:
        return [result for results in self.results.values() for result in results]
