"""Verify a stream: read ledger, tables and landing zone in the order that a running consumer cannot disturb."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from time import monotonic, sleep, time

from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import bronze_query, read_checkpoint
from lakeproof.contracts import Contract, load_contract
from lakeproof.errors import UnavailableError
from lakeproof.history.applied import applied_contracts
from lakeproof.kafka.recorded import Recorded, recorded_topic
from lakeproof.landing.zone import LandingZone, is_hidden, landing_zone
from lakeproof.settings import Limits, Settings
from lakeproof.storage import StoredFile
from lakeproof.storage.local import local_path
from lakeproof.tables.names import LANDING_ROOT, stream_tables
from reader.connect import Session
from reader.verify.findings import Account, Booking, Evidence, Finding, Status, is_changed, judge, may_be_a_copy
from reader.verify.gold.findings import ProductVerification
from reader.verify.gold.run import verify_gold
from reader.verify.kafka.run import verify_topic
from reader.verify.lake import StreamLake
from reader.verify.landing import recount, same_size
from reader.verify.progress import accounted_position, passed_files
from reader.verify.receipts.findings import ReceiptsVerification
from reader.verify.silver.findings import SilverVerification
from reader.verify.silver.run import verify_silver
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
    problems
        What is wrong with the stream as a whole, in words.
    hidden
        How many files in the landing zone have hidden names, and so are no batches.
    landed_units, bronze_rows, dead_letters
        Units that were counted in the landing zone, and rows in the tables.
    sampled_rows
        Rows of bronze whose values were compared.
    resent
        Files with the same bytes under several names.
    silver
        What was found in the silver tables; None where the stream has none.
    gold
        What was found in the tables of the data products that read the stream.
    receipts
        What became of the collector's receipts; None where none were checked.
    """

    stream: str
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    hidden: int
    landed_units: int
    bronze_rows: int
    dead_letters: int
    sampled_rows: int
    resent: tuple[tuple[str, ...], ...]
    silver: SilverVerification | None = None
    gold: tuple[ProductVerification, ...] = ()
    receipts: ReceiptsVerification | None = None

    @property
    def off(self) -> list[Finding]:
        """Sources with which something is wrong."""
        return [finding for finding in self.findings if finding.status.off]

    @property
    def accounted(self) -> bool:
        """Whether nothing is wrong between the landing zone and bronze."""
        return not self.off and not self.problems

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        layers = (self.silver, self.receipts, *self.gold)
        return self.accounted and all(each is None or each.clean for each in layers)

    @property
    def complete(self) -> bool:
        """Whether nothing is wrong, and all layers have all that landed."""
        waiting = self.receipts.waiting if self.receipts else 0
        undecided = self.silver.undecided if self.silver else 0
        layers = (self.silver, *self.gold)
        return (
            self.clean
            and not (waiting or undecided or self.counts()[Status.PENDING] or any(each.behind for each in self.gold))
            and all(each is None or each.exists for each in layers)
        )

    def counts(self) -> dict[Status, int]:
        """How many sources are what."""
        counted = Counter(finding.status for finding in self.findings)
        return {status: counted[status] for status in Status}


@dataclass(frozen=True)
class _Books:
    bookings: Mapping[str, Booking]
    accounts: Mapping[str, Account]
    landed: dict[str, StoredFile]
    hidden: int

    def sources(self) -> list[str]:
        return sorted({*self.bookings, *self.accounts, *self.landed})


def verify_stream(settings: Settings, session: Session, stream: str, values: bool, show: Show) -> Verification:
    """Recount a stream's landing zone, and compare it with its tables and its ledger; recompute silver and gold.

    Raises
    ------
    LakeproofError
        A table, the landing zone or the contract cannot be read.
    """
    lake = StreamLake(session, stream)
    show(f"{stream}: tables", 0, 0)
    if recorded := recorded_topic(_ledger_properties(settings, stream)):
        landed = _verify_topic(settings, session, lake, stream, recorded, values, show)
    else:
        landed = _verify_files(settings, lake, stream, values, show)
    show(f"{stream}: silver", 0, 0)
    silver = verify_silver(settings, session, stream)
    show(f"{stream}: gold", 0, 0)
    return replace(landed, silver=silver, gold=verify_gold(settings, session, stream))


def _verify_files(settings: Settings, lake: StreamLake, stream: str, values: bool, show: Show) -> Verification:
    """Compare the landing zone with bronze, dead letters and ledger."""
    zone = landing_zone(settings, stream)
    checkpoint = read_checkpoint(settings, bronze_query(stream))  # before the ledger, which is never behind it
    ledger = _ledger_properties(settings, stream)  # before its rows, which are never behind them
    books = _read_books(lake, zone)
    _check_folder(zone, ledger.get(LANDING_ROOT), books)
    pending = books.landed.keys() - books.bookings.keys() - books.accounts.keys()
    passed = passed_files(settings, stream, checkpoint, accounted_position(ledger, stream), pending)
    sample = _sample(settings, lake, stream) if values else None
    letters: dict[str, dict[int, list[str | None]]] = {}
    for source, position, raw_hash in lake.letters():
        letters.setdefault(source, {}).setdefault(position, []).append(raw_hash)
    recounted = _recount(
        zone,
        books,
        letters,
        sample,
        settings.limits,
        lambda done, due: show(f"{stream}: landing zone", done, due),
    )
    return Verification(
        stream=stream,
        findings=_judge(lake, books, recounted, passed.names),
        problems=passed.problems,
        hidden=books.hidden,
        landed_units=sum(units.count for units in recounted.units.values()),
        bronze_rows=sum(account.bronze for account in books.accounts.values()),
        dead_letters=sum(account.rows - account.bronze for account in books.accounts.values()),
        sampled_rows=len(sample) if sample else 0,
        resent=recounted.resent,
    )


def _verify_topic(
    settings: Settings, session: Session, lake: StreamLake, stream: str, recorded: Recorded, values: bool, show: Show
) -> Verification:
    """Compare the topic with bronze, dead letters and ledger."""
    sample: Sample | None = None

    def sampled() -> Sample | None:
        nonlocal sample
        sample = _sample(settings, lake, stream) if values else None
        return sample

    found = verify_topic(
        settings,
        session,
        stream,
        recorded,
        lambda: _ledger_properties(settings, stream),
        sampled,
        lambda done, due: show(f"{stream}: topic {recorded.topic}, offsets", done, due),
    )
    return Verification(
        stream=stream,
        findings=found.findings,
        problems=found.problems,
        hidden=0,
        landed_units=found.units,
        bronze_rows=found.bronze,
        dead_letters=found.dead_letters,
        sampled_rows=len(sample) if sample else 0,
        resent=(),
    )


def _sample(settings: Settings, lake: StreamLake, stream: str) -> Sample:
    contracts = _contracts(settings, stream)
    newest = list(contracts.values())[-1]
    return Sample(contracts, lake.sample([field.name for field in newest], SAMPLED_ROWS))


def _contracts(settings: Settings, stream: str) -> dict[str, Contract]:
    """The contracts that were applied, by version, the newest last; where the lake has no record of one, the file's."""
    with catalog_errors():
        applied = applied_contracts(open_catalog(settings), stream)
    if not applied:
        contract = load_contract(settings.contracts, stream)
        return {contract.version: contract}
    newest = applied[-1]
    found = {each.version: each.contract() for each in applied if each.version != newest.version}
    return found | {newest.version: newest.contract()}


def _read_books(lake: StreamLake, zone: LandingZone) -> _Books:
    # A micro-batch is appended to bronze, then to the dead letters, then to the ledger. Read the other way round, each
    # source of the ledger has all its rows; and all that they come from has landed by the time of the listing.
    patience = monotonic() + _WAIT_SECONDS
    while True:
        bookings = lake.bookings()
        accounts = lake.accounts()
        newest = max((accounts[source].ingested_at or 0.0 for source in accounts.keys() - bookings.keys()), default=0.0)
        if time() - newest > _YOUNG_SECONDS or monotonic() > patience:
            landed = dict(zone.list())
            hidden = {name for name in landed if is_hidden(name)}
            return _Books(
                bookings, accounts, {name: landed[name] for name in landed.keys() - hidden}, hidden=len(hidden)
            )
        sleep(_LOOK_AGAIN_SECONDS)


def _ledger_properties(settings: Settings, stream: str) -> Mapping[str, str]:
    with catalog_errors():
        return open_catalog(settings).load_table(stream_tables(stream).ledger).properties


def _check_folder(zone: LandingZone, recorded: str | None, books: _Books) -> None:
    """Tell a landing zone from which all files are gone from one that is not there, or is another one."""
    if books.bookings and not books.landed and not zone.is_there():
        raise UnavailableError(
            f"The ledger has sources, but the landing zone {local_path(zone.root)} does not exist.",
            "Check LAKE_LANDING, and that its disk is mounted.",
        )
    if recorded and recorded != zone.root:
        raise UnavailableError(
            f"The files landed in {recorded}, but LAKE_LANDING is now {zone.root}.",
            "Change LAKE_LANDING back, or see `lakeproof landing move --help`.",
        )


@dataclass(frozen=True)
class _Recounted:
    units: dict[str, Units]
    contents: dict[str, list[str]]
    hashes: dict[str, str]
    resent: tuple[tuple[str, ...], ...]


def _recount(
    zone: LandingZone,
    books: _Books,
    letters: Mapping[str, Mapping[int, Sequence[str | None]]],
    sample: Sample | None,
    limits: Limits,
    advanced: Callable[[int, int], None],
) -> _Recounted:
    """Count the files that were consumed and are still what was read; hash those that may have landed twice."""
    wanted: dict[str, AbstractSet[int]] = {}
    units: dict[str, Units] = {}
    gone = {name: booking for name, booking in books.bookings.items() if name not in books.landed}
    sizes = {booking.size for booking in gone.values() if booking.content_hash}
    hashed = same_size(books.landed) | {name for name, file in books.landed.items() if file.size in sizes}
    for name, file in books.landed.items():
        account, booking = books.accounts.get(name), books.bookings.get(name)
        copied = may_be_a_copy(file, booking)
        if copied:
            hashed.add(name)
        if file.size > limits.unpacked_bytes:  # it is not read: tables and ledger say what it had
            if account and account.by_reference:
                units[name] = Units(1, whole=True)
            continue
        if (account or booking) and (copied or not is_changed(file, account, booking)):
            wanted[name] = letters.get(name, {}).keys() | (sample.positions(name) if sample else frozenset())
    files = {
        name: file
        for name, file in books.landed.items()
        if name in wanted or (name in hashed and file.size <= limits.unpacked_bytes)
    }
    due, done = sum(file.size for file in files.values()), 0
    contents: dict[str, list[str]] = {}
    twins: dict[str, list[str]] = {}
    hashes: dict[str, str] = {}

    advanced(0, due)
    for counted in recount(zone, files, wanted, hashed, limits):
        name = counted.name
        if counted.content_hash:
            twins.setdefault(counted.content_hash, []).append(name)
            hashes[name] = counted.content_hash
        booking, account = books.bookings.get(name), books.accounts.get(name)
        if counted.units and is_changed(counted.file, account, booking, hashes.get(name)):
            pass  # it has the size of what was read, and other bytes
        elif counted.units and account and account.by_reference and not counted.units.whole:
            pass  # the limit was lower when it was judged
        elif counted.units and account and not account.by_reference and counted.units.too_large:
            pass  # the limit was higher when it was judged
        elif counted.units:
            picked = counted.units.picked
            contents[name] = _altered(letters.get(name, {}), picked) + _first(
                list(sample.differences(name, picked, *_drift(books, name))) if sample else []
            )
            units[name] = Units(counted.units.count, counted.units.whole)
        elif name in wanted:  # no longer what was listed
            _look_again(zone, books, name)
        done += counted.file.size
        advanced(done, due)
    for name, booking in gone.items():  # one that was moved has landed again
        if booking.content_hash in twins:
            twins[booking.content_hash].append(name)
    resent = tuple(sorted(tuple(sorted(names)) for names in twins.values() if len(names) > 1))
    return _Recounted(units, contents, hashes, resent)


def _look_again(zone: LandingZone, books: _Books, name: str) -> None:
    file = zone.stat(name)
    if file:
        books.landed[name] = file
    else:
        del books.landed[name]


def _altered(letters: Mapping[int, Sequence[str | None]], picked: Mapping[int, bytes]) -> list[str]:
    altered = [
        f"the dead letter of unit {position} differs from the landed bytes"
        for position, raw_hashes in sorted(letters.items())
        if position in picked and set(raw_hashes) != {hashlib.sha256(picked[position]).hexdigest()}
    ]
    return _first(altered)


def _first(texts: list[str]) -> list[str]:
    more = len(texts) - _SHOWN_DIFFERENCES
    return [*texts[:_SHOWN_DIFFERENCES], f"and {more:,} more of this kind"] if more > 0 else texts


def _drift(books: _Books, uri: str) -> tuple[int, int]:
    """How many values of a source were discarded, as the ledger says, and how many rows of it are in bronze."""
    account, booking = books.accounts.get(uri), books.bookings.get(uri)
    return booking.discarded if booking else 0, account.bronze if account else 0


def _is_even(books: _Books, name: str, content_hash: str | None, units: int) -> bool:
    """Whether as many units as there should be are in the tables, each once."""
    account = books.accounts.get(name, Account())
    if is_changed(books.landed.get(name), account, books.bookings.get(name), content_hash):
        # Its units cannot be recounted, and the ledger says how many were read, not which.
        return account.rows == account.positions == units
    return account.is_exactly(units)


def _judge(lake: StreamLake, books: _Books, recounted: _Recounted, passed: AbstractSet[str]) -> tuple[Finding, ...]:
    units = {name: booking.units for name, booking in books.bookings.items()}
    units |= {name: counted.count for name, counted in recounted.units.items()}
    hashes = recounted.hashes
    uneven = {name: count for name, count in units.items() if not _is_even(books, name, hashes.get(name), count)}
    missing, extra = lake.compare(uneven) if uneven else ({}, {})
    return tuple(
        judge(
            source,
            Evidence(
                landed=books.landed.get(source),
                account=books.accounts.get(source),
                booking=books.bookings.get(source),
                content_hash=hashes.get(source),
                passed=source in passed,
                units=units.get(source, 0),
                whole=source in recounted.units and recounted.units[source].whole,
                missing=missing.get(source, (0, ())),
                extra=extra.get(source, (0, ())),
                contents=recounted.contents.get(source, ()),
            ),
        )
        for source in books.sources()
    )
