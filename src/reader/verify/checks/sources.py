"""Shared code of the checks of landing zone and topic: their section of the report, and their sampled rows."""

from collections import Counter
from collections.abc import Mapping, Sequence

from lakeproof.catalog import catalog_errors
from lakeproof.contracts import Contract, load_contract
from lakeproof.history.applied import applied_contracts
from lakeproof.landing.selection import Ignored
from lakeproof.tables.names import stream_tables
from lakeproof.wording import are, count_of
from reader.verify.check import Result, Scope, Section
from reader.verify.findings import SHOWN_EXAMPLES, Finding, Status
from reader.verify.landed.values import Sample
from reader.verify.tables.accounts import sampled_rows
from reader.verify.tables.removals import not_removed
from reader.verify.tables.replays import IS_REPLAYED, Replays
from reader.verify.tables.under_way import IS_COMPARED

_IGNORED = {
    Ignored.HIDDEN: "with hidden names (such as _SUCCESS)",
    Ignored.FORMAT: "of other formats by their names (such as .parquet)",
    Ignored.EXCLUDED: "that the globs of the contract leave out",
    Ignored.EARLIER: "from before the beginning of the stream",
}

_SHOWN = [status for status in Status if status is not Status.ERASED]  # a remark reports erased units

ROWS_AT_ONCE = 100_000
"""Number of bronze rows whose values are compared at once."""


def result_of(
    findings: Sequence[Finding],
    problems: Sequence[str] = (),
    *,
    units: int = 0,
    bronze: int = 0,
    dead_letters: int = 0,
    sampled: int = 0,
    expired: int = 0,
    ignored: Mapping[Ignored, int] | None = None,
    resent: tuple[tuple[str, ...], ...] = (),
) -> Result:
    """Return the result of comparing landed sources with the tables.

    `units` counts the landed units, `bronze` and `dead_letters` the rows, `sampled` the rows compared by value.
    `ignored` counts files by reason, `resent` has groups of files with the same bytes, and `expired` counts expired
    files that are not among the findings.
    """
    remarks = []
    if sampled:
        remarks.append(f"compared the values of {sampled:,} bronze rows.")
    if resent:
        copies, first = sum(len(names) - 1 for names in resent), " = ".join(resent[0][:2])
        text = f"{are(copies, 'file')} {'a copy' if copies == 1 else 'copies'} of another file"
        remarks.append(f"{text}, with the same bytes: {first}" + (", …" if copies > 1 else ""))
    if erased := sum(finding.what == Status.ERASED for finding in findings):
        remarks.append(f"units of {count_of(erased, 'source')} were erased; ledger, tables and account agree.")
    for why, count in (ignored or {}).items():
        remarks.append(f"ignored {count_of(count, 'file')} {_IGNORED[why]}.")
    counts = Counter(finding.what for finding in findings)
    counts[Status.EXPIRED] += expired
    facts = {
        "landed_units": units,
        "bronze_rows": bronze,
        "dead_letters": dead_letters,
        "sampled_rows": sampled,
        "hidden_files": (ignored or {}).get(Ignored.HIDDEN, 0),
        "ignored_files": {why: (ignored or {}).get(why, 0) for why in Ignored},
        "counts": {status: counts[status] for status in Status},
        "resent": resent,
    }
    return Result(
        facts,
        tuple(finding for finding in findings if finding.what != Status.OK),
        tuple(problems),
        waiting=sum(map(_is_waiting, findings)),
        remarks=tuple(remarks),
    )


def _is_waiting(finding: Finding) -> bool:
    """Return whether a source was not consumed, or not to its end: a topic may also have lost old messages."""
    return finding.what == Status.PENDING or (not finding.is_fault and finding.rows > 0)


def worst_of(source: str, told: Sequence[tuple[Status, str]]) -> Finding:
    """Return the finding for a source with faults, with the worst status."""
    worst = min((status for status, _ in told), key=list(Status).index)
    return Finding(source, worst, details=tuple(text for _, text in told))


def first_of(texts: Sequence[str]) -> list[str]:
    """Return the first few texts, and the number of the others."""
    more = len(texts) - SHOWN_EXAMPLES
    return [*texts[:SHOWN_EXAMPLES], *([f"and {more:,} more of this kind"] if more > 0 else [])]


def replays_of(scope: Scope) -> Replays:
    """Return the replays of the stream's dead letters, not loaded yet."""

    def exists() -> bool:
        with catalog_errors():
            return bool(scope.catalog.table_exists(stream_tables(scope.stream).attempts))

    return Replays(scope.session, scope.book.tables, exists)


def lost_attempts(stream: str) -> str:
    """Return the problem of a dropped table of attempts: without it, closed dead letters are unknown."""
    names = stream_tables(stream)
    return (
        f"{names.ledger} has replays of dead letters, but {names.attempts} does not exist: it was dropped, so nothing "
        "can be recounted. Restore it from a backup."
    )


class Compared:
    """The bronze rows whose values are compared with the landed bytes: none, a random sample, or all that are read."""

    def __init__(self, scope: Scope, replays: Replays) -> None:
        self._session = scope.session
        self._bronze = scope.book.tables.bronze
        self._where = f"{not_removed(scope.session, self._bronze)} AND {IS_COMPARED}"
        if replays.attempts:
            # Rows of a replay are compared with the replayed bytes, and their discarded values are in its own row of
            # the ledger: another check does that.
            self._where += f" AND NOT {IS_REPLAYED} AND {replays.landed_as_it_is()}"
        self._contracts = contracts_of(scope) if scope.values else {}
        self._number = scope.sample if scope.values else None
        self._some: Sample | None = None
        self.is_whole = scope.values and scope.sample is None
        self.rows = 0  # compared so far

    def draw(self, condition: str, parameters: Sequence[object]) -> None:
        """Draw the random sample, if one is wanted, from the sources that a condition selects: those to be read."""
        if self._number is not None:
            self._some = self._rows(condition, parameters, self._number)

    def of(self, condition: str, parameters: Sequence[object]) -> Sample | None:
        """Return the rows to compare for the sources that a condition selects."""
        return self._rows(condition, parameters) if self.is_whole else self._some

    def _rows(self, condition: str, parameters: Sequence[object], some: int | None = None) -> Sample:
        columns, where = columns_of(self._contracts), f"{condition} AND {self._where}"
        rows = sampled_rows(self._session, self._bronze, columns, where, parameters, some)
        return Sample(self._contracts, rows)


def columns_of(contracts: Mapping[str, Contract]) -> list[str]:
    """Return the names of bronze columns with values of records."""
    return [field.name for field in list(contracts.values())[-1]]


def contracts_of(scope: Scope) -> Mapping[str, Contract]:
    """Return the applied contracts by version, newest last; without a record in the lake, the one in the file."""
    with catalog_errors():
        applied = applied_contracts(scope.catalog, scope.stream)
    if not applied:
        contract = load_contract(scope.settings.contracts, scope.stream)
        return {contract.version: contract}
    newest = applied[-1]
    found = {each.version: each.contract() for each in applied if each.version != newest.version}
    return found | {newest.version: newest.contract()}


def _rows(result: Result) -> list[tuple[int, ...]]:
    facts = result.facts
    counts = (facts["counts"][each] for each in _SHOWN)
    return [(*counts, facts["landed_units"], facts["bronze_rows"], facts["dead_letters"])]


def _pending(results: Sequence[Result]) -> str:
    pending = [each for result in results for each in result.findings if _is_waiting(each)]
    offsets = [each.rows for each in pending if each.rows]
    texts = []
    if files := len(pending) - len(offsets):
        texts.append(f"{are(files, 'file')} not consumed yet.")
    if offsets:
        of = f"of {count_of(len(offsets), 'partition')}"
        texts.append(f"{are(sum(offsets), f'offset {of}', f'offsets {of}')} not consumed yet.")
    return " ".join(texts)


SECTION = Section(
    key="",
    title="Recounted sources",
    columns=(*_SHOWN, "landed units", "in bronze", "dead letters"),
    rows=_rows,
    faults="sources with problems",
    wrong="some units are lost, doubled or changed",
    right="each landed unit is in exactly one table, once.",
    pending=_pending,
)
