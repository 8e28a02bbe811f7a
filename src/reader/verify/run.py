"""Verify a stream: read ledger, tables and landing zone in the order that a running consumer cannot disturb."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from time import monotonic, sleep, time

from lakeproof.catalog import open_catalog
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.schema_changes import applied_contracts
from lakeproof.settings import Settings
from lakeproof.storage import StoredFile
from lakeproof.storage.local import local_path
from reader.connect import Session
from reader.rest_facade import unreadable
from reader.verify.findings import Account, Booking, Evidence, Finding, Status, is_changed, judge
from reader.verify.lake import StreamLake
from reader.verify.landing import Landing, recount, same_size
from reader.verify.units import Units
from reader.verify.values import Sample

SAMPLED_ROWS = 1_000
"""Rows of bronze that are compared value by value."""

# Rows that the ledger lacks may be those of a micro-batch that is being appended: if they are that young, wait.
_YOUNG_SECONDS = 600.0
_WAIT_SECONDS = 15.0
_LOOK_AGAIN_SECONDS = 1.0
_SHOWN_DIFFERENCES = 5

Show = Callable[[str, int, int], None]
"""Told what is being done, the bytes that are done and those that are to be done; 0 and 0 where that is not known."""


@dataclass(frozen=True)
class Verification:
    """What verify found in a stream.

    Parameters
    ----------
    stream
        Name of the stream.
    findings
        Of each source, in the order of their names.
    landed_units, bronze_rows, dead_letters
        Units that were counted in the landing zone, and rows in the tables.
    sampled_rows
        Rows of bronze whose values were compared.
    resent
        Files with the same bytes under several names.
    """

    stream: str
    findings: tuple[Finding, ...]
    landed_units: int
    bronze_rows: int
    dead_letters: int
    sampled_rows: int
    resent: tuple[tuple[str, ...], ...]

    @property
    def off(self) -> list[Finding]:
        """Sources with which something is wrong."""
        return [finding for finding in self.findings if finding.status.off]

    def counts(self) -> dict[Status, int]:
        """How many sources are what."""
        counted = Counter(finding.status for finding in self.findings)
        return {status: counted[status] for status in Status}


@dataclass(frozen=True)
class _Books:
    bookings: Mapping[str, Booking]
    accounts: Mapping[str, Account]
    landed: dict[str, StoredFile]

    def sources(self) -> list[str]:
        return sorted({*self.bookings, *self.accounts, *self.landed})


def verify_stream(settings: Settings, session: Session, stream: str, values: bool, show: Show) -> Verification:
    """Recount a stream's landing zone and compare it with its tables and its ledger.

    Raises
    ------
    LakeproofError
        A table, the landing zone or the contract cannot be read.
    """
    root = f"{settings.landing_uri}/{stream}"
    landing = Landing(root, settings.s3)
    lake = StreamLake(session, stream)
    show(f"{stream}: tables", 0, 0)
    books = _read_books(lake, landing)
    if books.bookings and not books.landed:
        _check_folder(root)
    sample = None
    if values:
        contracts = _contracts(settings, stream)
        newest = list(contracts.values())[-1]
        sample = Sample(contracts, lake.sample([field.name for field in newest], SAMPLED_ROWS))
    letters: dict[str, dict[int, list[str | None]]] = {}
    for source, position, raw_hash in lake.letters():
        letters.setdefault(source, {}).setdefault(position, []).append(raw_hash)
    recounted = _recount(landing, books, letters, sample, lambda done, due: show(f"{stream}: landing zone", done, due))
    findings = _judge(lake, books, recounted.units, recounted.contents)
    return Verification(
        stream=stream,
        findings=findings,
        landed_units=sum(units.count for units in recounted.units.values()),
        bronze_rows=sum(account.bronze for account in books.accounts.values()),
        dead_letters=sum(account.rows - account.bronze for account in books.accounts.values()),
        sampled_rows=len(sample) if sample else 0,
        resent=recounted.resent,
    )


def _contracts(settings: Settings, stream: str) -> dict[str, Contract]:
    """The contracts that were applied, by version, the newest last; where the lake has no record of one, the file's."""
    try:
        applied = applied_contracts(open_catalog(settings), stream)
    except LakeproofError:
        raise
    except Exception as error:
        raise unreadable(error) from error
    if not applied:
        contract = load_contract(settings.contracts, stream)
        return {contract.version: contract}
    newest = applied[-1]
    found = {each.version: each.contract() for each in applied if each.version != newest.version}
    return found | {newest.version: newest.contract()}


def _read_books(lake: StreamLake, landing: Landing) -> _Books:
    # A micro-batch is appended to bronze, then to the dead letters, then to the ledger. Read the other way round, each
    # source of the ledger has all its rows; and all that they come from has landed by the time of the listing.
    patience = monotonic() + _WAIT_SECONDS
    while True:
        bookings = lake.bookings()
        accounts = lake.accounts()
        newest = max((accounts[source].ingested_at or 0.0 for source in accounts.keys() - bookings.keys()), default=0.0)
        if time() - newest > _YOUNG_SECONDS or monotonic() > patience:
            return _Books(bookings, accounts, landing.files())
        sleep(_LOOK_AGAIN_SECONDS)


def _check_folder(root: str) -> None:
    """Tell a landing zone from which all files are gone from one that is not there at all."""
    if root.startswith("file://") and not local_path(root).is_dir():
        raise UnavailableError(
            f"The ledger has sources, but the landing zone {local_path(root)} is not there.",
            "Check LAKE_LANDING and that its disk is mounted.",
        )


@dataclass(frozen=True)
class _Recounted:
    units: dict[str, Units]
    contents: dict[str, list[str]]
    resent: tuple[tuple[str, ...], ...]


def _recount(
    landing: Landing,
    books: _Books,
    letters: Mapping[str, Mapping[int, Sequence[str | None]]],
    sample: Sample | None,
    advanced: Callable[[int, int], None],
) -> _Recounted:
    """Count the files that were consumed and are still what was read; hash those that may have landed twice."""
    wanted: dict[str, AbstractSet[int]] = {}
    for uri, file in books.landed.items():
        account, booking = books.accounts.get(uri), books.bookings.get(uri)
        if (account or booking) and not is_changed(file, account, booking):
            wanted[uri] = letters.get(uri, {}).keys() | (sample.positions(uri) if sample else frozenset())
    hashed = same_size(books.landed.values())
    files = [file for uri, file in books.landed.items() if uri in wanted or uri in hashed]
    due, done = sum(file.size for file in files), 0
    units: dict[str, Units] = {}
    contents: dict[str, list[str]] = {}
    twins: dict[str, list[str]] = {}

    advanced(0, due)
    for counted in recount(landing, files, wanted, hashed):
        uri = counted.file.uri
        if counted.content_hash:
            twins.setdefault(counted.content_hash, []).append(uri)
        if counted.units:
            picked = counted.units.picked
            contents[uri] = _altered(letters.get(uri, {}), picked) + _first(
                list(sample.differences(uri, picked, *_drift(books, uri))) if sample else []
            )
            units[uri] = Units(counted.units.count, counted.units.whole)
        elif uri in wanted:  # no longer what was listed
            _look_again(landing, books, uri)
        done += counted.file.size
        advanced(done, due)
    return _Recounted(units, contents, tuple(sorted(tuple(sorted(uris)) for uris in twins.values() if len(uris) > 1)))


def _look_again(landing: Landing, books: _Books, uri: str) -> None:
    file = landing.open().stat(uri)
    if file:
        books.landed[uri] = file
    else:
        del books.landed[uri]


def _altered(letters: Mapping[int, Sequence[str | None]], picked: Mapping[int, bytes]) -> list[str]:
    altered = [
        f"the dead letter of unit {position} has other bytes than were landed"
        for position, raw_hashes in sorted(letters.items())
        if position in picked and set(raw_hashes) != {hashlib.sha256(picked[position]).hexdigest()}
    ]
    return _first(altered)


def _first(texts: list[str]) -> list[str]:
    more = len(texts) - _SHOWN_DIFFERENCES
    return [*texts[:_SHOWN_DIFFERENCES], f"and {more:,} more of the kind"] if more > 0 else texts


def _drift(books: _Books, uri: str) -> tuple[int, int]:
    """How many values of a source were discarded, as the ledger says, and how many rows of it are in bronze."""
    account, booking = books.accounts.get(uri), books.bookings.get(uri)
    return booking.discarded if booking else 0, account.bronze if account else 0


def _is_even(books: _Books, uri: str, units: int) -> bool:
    """Whether as many units as are due are in the tables, each once."""
    account = books.accounts.get(uri, Account())
    if is_changed(books.landed.get(uri), account, books.bookings.get(uri)):
        # Its units cannot be counted anew, and the ledger says how many were taken, not which.
        return account.rows == account.positions == units
    return account.is_exactly(units)


def _judge(
    lake: StreamLake, books: _Books, recounted: Mapping[str, Units], contents: Mapping[str, Sequence[str]]
) -> tuple[Finding, ...]:
    units = {uri: booking.units for uri, booking in books.bookings.items()}
    units |= {uri: counted.count for uri, counted in recounted.items()}
    uneven = {uri: count for uri, count in units.items() if not _is_even(books, uri, count)}
    missing, extra = lake.compare(uneven) if uneven else ({}, {})
    return tuple(
        judge(
            source,
            Evidence(
                landed=books.landed.get(source),
                account=books.accounts.get(source),
                booking=books.bookings.get(source),
                units=units.get(source, 0),
                whole=source in recounted and recounted[source].whole,
                missing=missing.get(source, (0, ())),
                extra=extra.get(source, (0, ())),
                contents=contents.get(source, ()),
            ),
        )
        for source in books.sources()
    )
