"""The driver: runs every check of the registry on every stream, whether it reads files or a topic.

- A check (:mod:`reader.verify.check`) has a name, a section of the report, and a function from a scope to results.
- The scope has the lake, the stream, its topic if any, and the options. A check that does not apply returns no result:
  `landing` is for streams of files and `topic` for streams of Kafka; the others do not depend on the kind of source.
- The driver refers to no check by name, so a layer cannot be verified for one kind of source and forgotten for another.
- A result has facts, findings, problems, and a count of sources or rows that have not arrived yet. All findings are of
  one type.
- The report (:mod:`reader.verify.report`) is assembled from results alone.
- To add a check, add a module to `checks/` and a line to :mod:`reader.verify.registry`.
- Packages of their own provide the data to compare: :mod:`~reader.verify.landed` reads files and messages again,
  :mod:`~reader.verify.tables` has the SQL for tables and ledger, `silver` and `gold` recompute the layers.
- Checks can run beside a consumer: each reads a marker before the rows, and ignores rows beyond the marker.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.history.applied import applied_contracts
from lakeproof.settings import Settings
from lakeproof.state.proofs import ProofKind
from lakeproof.tables.names import stream_tables
from reader.catalogs import catalog_of, contract_is_missing, streams_without_contract
from reader.connect import connect
from reader.verify import registry
from reader.verify.book.book import Book
from reader.verify.check import Result, Scope, Section, Verification
from reader.verify.checks.sources import contracts_of
from reader.verify.hold import holding_streams

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_TRIES = 3


class CannotCheckError(LakeproofError):
    """A table or the landing zone cannot be read, so the result is unknown."""

    exit_code = 2


class CannotCheckYetError(CannotCheckError):
    """A required resource is unavailable, perhaps temporarily."""

    retryable = True


def verify(
    settings: Settings,
    stream: str | None = None,
    values: bool = False,
    receipts: Path | None = None,
    kind: ProofKind = ProofKind.ALL,
    sample: int | None = None,
) -> list[Verification]:
    """Verify a stream, or all streams with a contract and tables, and show progress on a terminal.

    By default, everything is proven; with ``ProofKind.NEW``, the additions since the last clean proof, as recorded in
    the book in the state database. With `values`, the values of all bronze rows that are read, or of a random `sample`,
    are compared with the landed bytes. With a file of the collector's `receipts`, each receipt is looked up.

    Raises CannotCheckError if a required resource cannot be read. If there are several streams, those that cannot be
    checked have the error in place of results, and the others are verified.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    terminal = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    if receipts and not stream:
        raise UsageError("Receipts are of one stream.", "Add its name: reader verify STREAM --receipts FILE.")
    try:
        streams = _streams(settings, stream)
        names = [name for name, error in streams.items() if error is None]
        with (
            Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as progress,
            connect(settings) as session,
            holding_streams(settings, names),
        ):
            task = progress.add_task("")

            def show(what: str, done: int, due: int) -> None:
                progress.update(task, description=what, completed=done, total=due or None)

            scope = Scope(settings, session, "", values, sample, receipts, show)
            found = [_tried(replace(scope, stream=name), kind, error) for name, error in streams.items()]
        if len(found) == 1 and (failure := found[0].error):
            raise failure
    except LakeproofError as error:
        raise _cannot_check(error) from error
    return [replace(each, error=_cannot_check(each.error, each.stream)) if each.error else each for each in found]


def _cannot_check(error: LakeproofError, stream: str = "") -> CannotCheckError:
    failure = CannotCheckYetError if error.retryable else CannotCheckError
    return failure(f"Could not check{' ' * bool(stream)}{stream}. {error.message}", error.hint)


def _tried(scope: Scope, kind: ProofKind, error: LakeproofError | None) -> Verification:
    """Verify a stream; if that fails, or there is an `error` already, return it in place of the results."""
    try:
        return Verification(scope.stream, {}, error=error) if error else _verify_stream(scope, kind)
    except LakeproofError as failure:
        if _is_of_signal(failure):
            raise
        return Verification(scope.stream, {}, error=failure)


def _is_of_signal(error: BaseException | None) -> bool:
    """Return whether a signal ended a check: DuckDB replaces the exception of the signal's handler by its own."""
    import duckdb

    while error is not None:
        if isinstance(error, duckdb.InterruptException) or not isinstance(error, Exception):
            return True
        error = error.__cause__ or error.__context__
    return False


def _verify_stream(scope: Scope, kind: ProofKind) -> Verification:
    for _ in range(_TRIES):
        found = _proven(replace(scope, opened=Book(scope.settings, scope.session, scope.stream, kind)))
        if found:
            return found
    raise UnavailableError(f"Rows of {scope.stream} keep being removed meanwhile.", "Try again.")


def _proven(scope: Scope) -> Verification | None:
    """Run all checks on a stream and record the proof in the book; return None if rows were removed meanwhile."""
    scope.show(f"{scope.stream}: book of proofs", 0, 0)
    fields = list(contracts_of(scope).values())[-1]
    scope.book.open(scope.catalog, fields, of_topic=scope.topic is not None)
    results: dict[Section, tuple[Result, ...]] = {}
    for check in registry.CHECKS:
        scope.show(f"{scope.stream}: {check.name}", 0, 0)
        # Each check gets a new scope: a connection to the catalog may not survive the recount of a large landing zone.
        found = (*results.get(check.section, ()), *check.run(replace(scope)))
        results[check.section] = tuple(sorted(found, key=lambda result: result.name))
    whole = Verification(scope.stream, results)
    if scope.book.is_outdated(replace(scope).catalog):  # nor may one survive all checks
        return None
    return replace(whole, proof=scope.book.record(whole.faults, clean=whole.clean))


def _streams(settings: Settings, stream: str | None) -> Mapping[str, LakeproofError | None]:
    """Return the streams to verify, each with the error if one of its tables or its contract is missing."""
    if stream is not None:
        load_contract(settings.contracts, stream)
    catalog = open_catalog(settings)
    contracts = settings.streams
    missing = {name: _missing_tables(catalog, name) for name in ([stream] if stream else contracts)}
    # A stream that was never consumed has none of its own tables; a stream that lost a table is reported.
    found: dict[str, LakeproofError | None] = {
        name: _lost(name, lacking)
        for name, lacking in missing.items()
        if stream or not _own_tables(name) <= lacking or _had_tables(catalog, name)
    }
    if stream is None:
        others = streams_without_contract(settings, catalog_of(settings))
        found |= {name: contract_is_missing(name) for name in others}
    if not found:
        raise UnavailableError("The lake has no tables yet.", "Run `lakeproof demo`, or the producer and the consumer.")
    return dict(sorted(found.items()))


def _lost(stream: str, tables: Set[str]) -> LakeproofError | None:
    if not tables:
        return None
    return UnavailableError(
        f"The table {min(tables)} of the stream {stream} is missing.", "Run the consumer, or restore the table."
    )


def _missing_tables(catalog: "Catalog", stream: str) -> set[str]:
    with catalog_errors():
        return {name for name in _own_tables(stream) if not catalog.table_exists(name)}


def _had_tables(catalog: "Catalog", stream: str) -> bool:
    """Return whether a contract was applied to the tables of a stream."""
    with catalog_errors():
        return bool(applied_contracts(catalog, stream))


def _own_tables(stream: str) -> set[str]:
    names = stream_tables(stream)
    return {names.bronze, names.dead_letters, names.ledger}
