"""Types for checks and their results. Neither the driver nor the report refers to a check by name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeproof.errors import LakeproofError
from lakeproof.kafka.recorded import Recorded, recorded_topic
from lakeproof.settings import Settings
from lakeproof.state.proofs import Proof, ProofKind
from lakeproof.tables.names import stream_tables
from reader.verify.book.book import Book
from reader.verify.findings import Finding

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from reader.connect import Session

Show = Callable[[str, int, int], None]
"""Progress callback: description of the step, bytes or offsets done, and their total; 0 and 0 if unknown."""


@dataclass(frozen=True)
class Result:
    """Result of a check for a stream or one of its products."""

    facts: Mapping[str, Any]  # counts: members of the JSON report
    findings: tuple[Finding, ...] = ()  # faults of sources or of rows of tables
    problems: tuple[str, ...] = ()  # messages about faults of the whole stream or product
    waiting: int = 0  # number of sources or rows that have not reached the layer yet
    missing: str = ""  # name of the layer's table if it does not exist
    name: str = ""  # name of the product; the sort key of results
    remarks: tuple[str, ...] = ()  # messages that are not about faults
    warnings: tuple[str, ...] = ()

    @property
    def faults(self) -> list[Finding]:
        """The findings that are faults."""
        return [finding for finding in self.findings if finding.is_fault]

    @property
    def clean(self) -> bool:
        """Whether the result has neither faults nor problems."""
        return not self.faults and not self.problems


@dataclass(frozen=True)
class Section:
    """A section of the report; several checks may contribute to it."""

    key: str  # name of its member of a stream in the JSON report; empty if the facts are members of the stream itself
    # The table of counts: title, column headings after the stream, and a function from a result to its rows.
    title: str
    columns: tuple[str, ...]
    rows: Callable[[Result], Iterable[Sequence[str | int]]]
    faults: str  # title of the table of faults
    # Texts of the report's last line: for faults; if clean; for rows that have not arrived yet; for results that are
    # clean, but unexpected.
    wrong: str
    right: str
    pending: Callable[[Sequence[Result]], str] = lambda _: ""
    caveat: Callable[[Sequence[Result]], str] = lambda _: ""
    is_list: bool = False  # whether a stream can have several results, one for each product
    has_problems: bool = True  # whether the JSON report contains the problems


@dataclass(frozen=True)
class Scope:
    """Input of a check: a stream of a lake, and the options."""

    settings: Settings
    session: "Session"
    stream: str
    values: bool = False  # whether to compare the values of bronze rows with the landed bytes
    sample: int | None = None  # number of random rows to compare; None for all rows that are read
    receipts: Path | None = None  # file of the collector's receipts
    show: Show = lambda *_: None  # progress callback
    opened: Book | None = None  # the book of proofs, opened once for all checks

    @cached_property
    def book(self) -> Book:
        """The book of proofs; by default one without proofs."""
        return self.opened or Book(self.settings, self.session, self.stream, ProofKind.ALL)

    @cached_property
    def catalog(self) -> "Catalog":
        """The catalog of the lake."""
        from lakeproof.catalog import catalog_errors, open_catalog

        with catalog_errors():
            return open_catalog(self.settings)

    @cached_property
    def topic(self) -> Recorded | None:
        """The topic of the stream; None if the stream reads files."""
        return recorded_topic(self.ledger_properties())

    def ledger_properties(self) -> Mapping[str, str]:
        """Return the current properties of the ledger."""
        from lakeproof.catalog import catalog_errors

        with catalog_errors():
            return self.catalog.load_table(stream_tables(self.stream).ledger).properties


@dataclass(frozen=True)
class Check:
    """A check: its name, its section of the report, and the function that returns its results."""

    name: str
    section: Section
    run: Callable[[Scope], tuple[Result, ...]]


@dataclass(frozen=True)
class Verification:
    """Results of all checks for a stream, by section of the report; none if it could not be checked."""

    stream: str
    results: Mapping[Section, tuple[Result, ...]]
    proof: Proof | None = None  # as recorded in the book; number 0 if it was not recorded
    error: LakeproofError | None = None  # why the stream could not be checked

    @property
    def faults(self) -> int:
        """Number of faults and problems."""
        return sum(len(result.faults) + len(result.problems) for result in self._all())

    @property
    def clean(self) -> bool:
        """Whether the stream was checked, and all results are clean."""
        return self.error is None and all(result.clean for result in self._all())

    @property
    def complete(self) -> bool:
        """Whether all results are clean, and every layer is up to date with the landed units."""
        return self.error is None and all(
            result.clean and not result.waiting and not result.missing for result in self._all()
        )

    def of(self, key: str) -> tuple[Result, ...]:
        """Return the results of the section with this key; the key of landed sources is empty."""
        return next(results for section, results in self.results.items() if section.key == key)

    @property
    def landed(self) -> Result:
        """The result of the comparison of landed sources with their tables."""
        (result,) = self.of("")
        return result

    @property
    def off(self) -> list[Finding]:
        """Findings for sources with faults."""
        return self.landed.faults

    def _all(self) -> list[Result]:
        return [result for results in self.results.values() for result in results]


def exit_code(verifications: Sequence[Verification]) -> int:
    """Return the exit code of verify: 1 with a fault, otherwise 2 if a stream could not be checked, otherwise 0."""
    if any(not each.clean for each in verifications if each.error is None):
        return 1
    return 2 * any(each.error is not None for each in verifications)
