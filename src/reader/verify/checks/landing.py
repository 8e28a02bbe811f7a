"""Landing: recount the files of the landing zone, and compare each with bronze, dead letters and ledger.

Reads happen in an order that stays consistent beside a running consumer: the checkpoint before the ledger, which is
never behind the checkpoint; the ledger before the tables; all three before the files are listed.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from lakeproof.checkpoint import Checkpoint, bronze_query, read_checkpoint
from lakeproof.errors import UnavailableError
from lakeproof.landing.root import moved
from lakeproof.landing.zone import LandingZone, landing_zone
from lakeproof.reasons import NOT_READ, Reason
from lakeproof.settings import Limits, Settings
from lakeproof.state.landing_log import Position, known_names
from lakeproof.storage import StoredFile
from lakeproof.storage.local import local_path
from lakeproof.tables.names import LANDING_ROOT, MICRO_BATCH_ID, SOURCE
from lakeproof.wording import count_of
from reader.verify.check import Check, Result, Scope
from reader.verify.checks.sources import (
    ROWS_AT_ONCE,
    SECTION,
    Compared,
    first_of,
    lost_attempts,
    replays_of,
    result_of,
    worst_of,
)
from reader.verify.findings import Finding, Status
from reader.verify.landed.files import recount, same_size
from reader.verify.landed.units import Units
from reader.verify.landed.values import Sample, excess
from reader.verify.tables.accounts import Account, Booking, difference, settle
from reader.verify.tables.files import Positions, TablesOfFiles
from reader.verify.tables.layers import marker_in, read_state

Letters = Mapping[str, Mapping[int, Sequence[str | None]]]
"""SHA-256 of the bytes of dead letters, by source and position."""


def check(scope: Scope) -> tuple[Result, ...]:
    """Compare the landing zone of a stream that reads files with its tables."""
    if scope.topic is not None:
        return ()
    settings, stream = scope.settings, scope.stream
    checkpoint = read_checkpoint(settings, bronze_query(stream))
    ledger = scope.ledger_properties()
    zone = landing_zone(settings, stream, ledger)
    marker = marker_in(ledger, bronze_query(stream))
    accounted = Position.parse(marker["end"]) if marker else None  # None before the first micro-batch
    since = scope.book.proven if scope.book.since else None
    tables = TablesOfFiles(scope.session, scope.book.tables, replays := replays_of(scope), since)
    settle(tables)
    if replays.is_lost:
        return (result_of([], [lost_attempts(stream)]),)
    listed, erased = dict(zone.list()), scope.book.removals.erased()
    proven = tables.trust(listed.keys() | erased.keys())
    old = tables.old()
    ignored = {name: why for name, file in listed.items() if (why := zone.ignores(name, file))}
    has_read = bool(tables.bookings or old.files)
    _check_folder(stream, zone, ledger.get(LANDING_ROOT), listed.keys() - ignored.keys(), has_read=has_read)
    pending = listed.keys() - tables.bookings.keys() - tables.accounts.keys()
    passed, problems = _passed(settings, stream, checkpoint, accounted, pending)
    # A file that was read, should have been, or will be, counts even if it is ignored now.
    expected = {*passed, *_logged(settings, stream, pending & ignored.keys()), *tables.bookings, *tables.accounts}
    landed = {name: file for name, file in listed.items() if name not in ignored or name in expected}
    compared = Compared(scope, replays)
    letters: dict[str, dict[int, list[str | None]]] = {}
    for source, position, raw_hash in tables.letters():
        letters.setdefault(source, {}).setdefault(position, []).append(raw_hash)
    found = _Recount(zone, tables, landed, letters, compared, settings.limits, proven)
    found.read(lambda done, due: scope.show(f"{stream}: landing zone", done, due))
    accounts = tables.accounts.values()
    return (
        result_of(
            _findings(tables, found, passed, erased),
            problems,
            units=sum(found.expected(name, units.count) for name, units in found.units.items())
            + sum(tables.bookings[name].units for name in found.landed.keys() & proven - found.units.keys()),
            bronze=old.bronze + sum(account.bronze for account in accounts),
            dead_letters=old.units - old.bronze + sum(account.rows - account.bronze for account in accounts),
            expired=old.files,
            sampled=compared.rows,
            ignored=Counter(why for name, why in ignored.items() if name not in expected),
            resent=found.resent(),
        ),
    )


def _check_folder(
    stream: str, zone: LandingZone, recorded: str | None, landed: AbstractSet[str], *, has_read: bool
) -> None:
    """Raise UnavailableError if the landing zone does not exist, or if the tables were filled from a different one."""
    if has_read and not landed and not zone.is_there():
        raise UnavailableError(
            f"The ledger has sources, but the landing zone {local_path(zone.root)} does not exist.",
            "Check LAKE_LANDING, and that its disk is mounted.",
        )
    if recorded and recorded != zone.root:
        raise UnavailableError(*moved(stream, recorded, zone))


def _passed(
    settings: Settings,
    stream: str,
    checkpoint: Checkpoint[Position] | None,
    accounted: Position | None,
    pending: AbstractSet[str],
) -> tuple[AbstractSet[str], tuple[str, ...]]:
    """Return pending files that will not be read, since their position was passed; and problems of the checkpoint."""
    reached = checkpoint.passed if checkpoint else None
    behind = accounted.seq if accounted else 0
    problems = []
    if reached and reached.seq >= behind and reached != accounted and reached.seq:
        problems.append(
            f"The checkpoint is at position {reached.seq:,} of the landing log, but the tables are at position "
            f"{behind:,}. The files in between will not be read. Run `consumer reset {stream}`, then the consumer."
        )
    end = max(behind, reached.seq if reached else 0)
    # If the database cannot be read, the problem is reported all the same.
    return _logged(settings, stream, pending, end) if end else set(), tuple(problems)


def _logged(settings: Settings, stream: str, names: AbstractSet[str], end: int | None = None) -> set[str]:
    """Return the names that are in the landing log up to the position `end`; none if it cannot be read."""
    if not names:
        return set()
    return read_state(settings, lambda connection: known_names(connection, stream, [*names], end), set())


@dataclass
class _Recount:
    """Counts the units of consumed files that have not changed; hashes files that may have landed twice."""

    zone: LandingZone
    tables: TablesOfFiles
    landed: dict[str, StoredFile]
    letters: Letters
    compared: Compared
    limits: Limits
    proven: AbstractSet[str] = frozenset()  # names of files that need not be read again if they have not changed
    units: dict[str, Units] = field(default_factory=dict)
    contents: dict[str, list[str]] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    gone: dict[str, Booking] = field(init=False)

    def __post_init__(self) -> None:
        self.gone = {name: each for name, each in self.tables.bookings.items() if name not in self.landed}

    def read(self, advanced: Callable[[int, int], None]) -> None:
        """Read the files; `advanced` is called with the bytes done and the total."""
        wanted, hashed = self._plan()
        files = {
            name: file
            for name, file in self.landed.items()
            if name in wanted or (name in hashed and file.size <= self.limits.unpacked_bytes)
        }
        due, done = sum(file.size for file in files.values()), 0
        advanced(0, due)
        self.compared.draw(*self._rows_of(wanted.keys()))
        for group in self._groups(files):
            sample = self.compared.of(*self._rows_of(wanted.keys() & group.keys()))
            picked = {
                name: wanted[name] | (sample.positions(name) if sample else frozenset())
                for name in wanted.keys() & group.keys()
            }
            for counted in recount(self.zone, group, picked, hashed, self.limits):
                name = counted.name
                if counted.content_hash:
                    self.hashes[name] = counted.content_hash
                if counted.units:
                    self._compare(name, counted.file, counted.units, sample)
                elif name in wanted:  # changed since it was listed
                    self._list_again(name)
                done += counted.file.size
                advanced(done, due)

    def _groups(self, files: dict[str, StoredFile]) -> Iterator[dict[str, StoredFile]]:
        """Yield files in groups whose rows fit into memory if all values are compared; otherwise all files together."""
        if not self.compared.is_whole:
            yield files
            return
        group: dict[str, StoredFile] = {}
        rows = 0
        for name in sorted(files, key=lambda name: (self._micro_batch(name), name)):
            account = self.tables.accounts.get(name)
            more = account.bronze if account else 0
            if group and rows + more > ROWS_AT_ONCE:
                yield group
                group, rows = {}, 0
            group[name] = files[name]
            rows += more
        yield group

    def _rows_of(self, files: AbstractSet[str]) -> tuple[str, list[object]]:
        """Return SQL that selects the bronze rows of files, and its parameters."""
        numbers = [self._micro_batch(name) for name in files] or [0]
        condition = f"{MICRO_BATCH_ID} BETWEEN ? AND ? AND {SOURCE} IN (SELECT unnest(?::VARCHAR[]))"
        return condition, [min(numbers), max(numbers), list(files)]

    def _micro_batch(self, name: str) -> int:
        booking = self.tables.bookings.get(name)
        return booking.micro_batch or 0 if booking else 0

    def expected(self, name: str, units: int) -> int:
        """Return the number of units of a file with `units` units, or after a replay of the file as a whole batch."""
        now, is_changed = self.tables.recovered.get(name, (units, False))
        counted = self.units.get(name)
        return now if counted is None or counted.whole or is_changed else counted.count

    def resent(self) -> tuple[tuple[str, ...], ...]:
        """Return groups of names of files with the same bytes; a file that was moved has landed again."""
        copies: dict[str, list[str]] = {}
        for name, content_hash in self.hashes.items():
            copies.setdefault(content_hash, []).append(name)
        for name, booking in self.gone.items():
            if booking.content_hash in copies:
                copies[booking.content_hash].append(name)
        for name, content_hash in self.tables.old_with("content_hash", copies):
            if name not in self.landed and name not in self.gone:
                copies[content_hash].append(name)
        return tuple(sorted(tuple(sorted(names)) for names in copies.values() if len(names) > 1))

    def _plan(self) -> tuple[dict[str, AbstractSet[int]], set[str]]:
        """Return the positions whose bytes are needed, by file to count; and the files to hash."""
        wanted: dict[str, AbstractSet[int]] = {}
        sizes = {booking.size for booking in self.gone.values() if booking.content_hash}
        new = {file.size for name, file in self.landed.items() if name not in self.proven}
        sizes |= {size for _, size in self.tables.old_with("size", new)}
        hashed = same_size(self.landed) | {name for name, file in self.landed.items() if file.size in sizes}
        hashed = self._without_proven(hashed)
        for name, file in self.landed.items():
            account, booking = self.tables.accounts.get(name), self.tables.bookings.get(name)
            copied = _may_be_a_copy(file, booking)
            if copied:
                hashed.add(name)
            if file.size > self.limits.unpacked_bytes:  # it is not read: tables and ledger have its counts
                if account and account.by_reference:
                    self.units[name] = Units(1, whole=True)
            elif not _is_repaired(self.tables, name) and (
                (account or booking)
                and (copied or (name not in self.proven and not _is_changed(file, account, booking)))
            ):
                wanted[name] = self.letters.get(name, {}).keys()
        return wanted, hashed

    def _without_proven(self, hashed: set[str]) -> set[str]:
        """Return the new files to hash; for proven files that may be copies of them, take the hashes of the ledger."""
        new = hashed - self.proven
        sizes = {self.landed[name].size for name in new}
        for name in hashed & self.proven:
            content_hash = self.tables.bookings[name].content_hash
            if content_hash and self.landed[name].size in sizes:
                self.hashes[name] = content_hash
        return new

    def _compare(self, name: str, file: StoredFile, units: Units, sample: Sample | None) -> None:
        account, booking = self.tables.accounts.get(name), self.tables.bookings.get(name)
        if _is_changed(file, account, booking, self.hashes.get(name)):
            return  # it has the size of the file that was read, but other bytes
        # The limit was different when the file was judged.
        if account and (not units.whole if account.by_reference else units.too_large):
            return
        altered = [
            f"the dead letter of unit {position} differs from the landed bytes"
            for position, raw_hashes in sorted(self.letters.get(name, {}).items())
            if position in units.picked and set(raw_hashes) != {hashlib.sha256(units.picked[position]).hexdigest()}
        ]
        # The ledger's row counts the rows before any replay, and only those are compared here.
        discarded, rows = booking.discarded if booking else 0, self.tables.landed.get(name, Account()).bronze
        differences: list[str] = []
        if sample:
            found = sample.compare(name, units.picked)
            self.compared.rows += found.rows
            is_whole = found.rows == rows
            differences = [*found.wrong, *excess(len(found.missing), found.missing, discarded, is_whole=is_whole)]
        self.contents[name] = first_of(altered) + first_of(differences)
        self.units[name] = Units(units.count, units.whole)

    def _list_again(self, name: str) -> None:
        file = self.zone.stat(name)
        if file:
            self.landed[name] = file
        else:
            del self.landed[name]


def _findings(
    tables: TablesOfFiles, found: _Recount, passed: AbstractSet[str], erased: Mapping[str, int]
) -> list[Finding]:
    """Return the status of each source, with details."""
    units = {name: booking.units for name, booking in tables.bookings.items()}
    units |= {name: counted.count for name, counted in found.units.items()}
    units = {name: found.expected(name, count) for name, count in units.items()}
    uneven = {name: count for name, count in units.items() if not _is_even(tables, found, name, count)}
    missing, extra = tables.compare(uneven) if uneven else ({}, {})
    findings = []
    for name in sorted({*tables.bookings, *tables.accounts, *found.landed}):
        has_rows, is_booked, is_landed = name in tables.accounts, name in tables.bookings, name in found.landed
        told: list[tuple[Status, str]] = []
        if not is_booked and not has_rows:
            if name in passed:
                told = [(Status.LOST, "it is in no table, and the consumer is already past its position")]
        elif not is_booked and not is_landed:
            told = [(Status.DOUBLED, "it has rows, but is neither in the landing zone nor in the ledger")]
        else:
            told = _of_units(units.get(name, 0), missing.get(name), extra.get(name)) + _of_file(tables, found, name)
        if told:
            findings.append(worst_of(name, told))
        elif name in erased:
            findings.append(Finding(name, Status.ERASED, details=(f"{count_of(erased[name], 'unit')} erased",)))
        else:
            status = Status.EXPIRED if not is_landed else Status.OK if is_booked or has_rows else Status.PENDING
            findings.append(Finding(name, status))
    return findings


def _is_even(tables: TablesOfFiles, found: _Recount, name: str, count: int) -> bool:
    """Return whether the expected number of units are in the tables, each once."""
    account = tables.accounts.get(name, Account())
    if _is_changed(found.landed.get(name), account, tables.bookings.get(name), found.hashes.get(name)):
        # The units cannot be recounted, and the ledger has only their number, not their positions.
        return account.rows == account.positions == count
    return account.is_exactly(count)


def _of_units(units: int, missing: Positions | None, extra: Positions | None) -> list[tuple[Status, str]]:
    told = []
    if missing:
        told.append((Status.LOST, f"of {units:,} units, {_listed(missing)} are in no table"))
    if extra:
        text = f"it has {units:,} units; rows without a unit of their own: {_listed(extra)}"
        told.append((Status.DOUBLED, text))
    return told


def _of_file(tables: TablesOfFiles, found: _Recount, name: str) -> list[tuple[Status, str]]:
    landed, booking = found.landed.get(name), tables.bookings.get(name)
    account = tables.accounts.get(name, Account())
    told = []
    is_whole = name in found.units and found.units[name].whole and name not in tables.recovered
    if is_whole and account.bronze:
        told.append((Status.LOST, "the batch cannot be split, so it is one dead letter, but bronze has rows of it"))
    if not booking:
        told.append((Status.LOST, "the ledger has no row for it"))
    elif booking.rows > 1:
        told.append((Status.DOUBLED, f"the ledger has {booking.rows} rows for it"))
    if Reason.CHANGED in account.dead:
        told.append((Status.CHANGED, "it was overwritten after it was listed and before it was read"))
    elif Reason.ABSENT in account.dead:
        if landed:  # a user has declared the file lost
            told.append((Status.LOST, "it was given up, but is back: land it again under another name"))
    elif _is_repaired(tables, name):
        pass  # the file is known to differ from the listed one
    elif booking and landed and _is_changed(landed, account, booking, found.hashes.get(name)):
        how = "another size" if landed.size != booking.size else "the same size, other bytes"
        told.append((Status.CHANGED, f"it was overwritten after it was read: {how}"))
    told += [(Status.CHANGED, text) for text in found.contents.get(name, ())]
    if booking and booking.rows == 1 and (text := difference(booking, tables.landed.get(name, Account()))):
        told.append((Status.CHANGED, text))
    return told


def _is_repaired(tables: TablesOfFiles, name: str) -> bool:
    """Return whether a file could not be read as listed, and a replay with a transform provided its bytes."""
    return name in tables.recovered and not NOT_READ.isdisjoint(tables.landed.get(name, Account()).dead)


def _is_changed(
    landed: StoredFile | None, account: Account | None, booking: Booking | None, content_hash: str | None = None
) -> bool:
    """Return whether the file is known to differ from the one that was read.

    A copied or restored file may have another tag: then `content_hash`, the hash of its bytes, decides.
    """
    if account and not NOT_READ.isdisjoint(account.dead):
        return True
    if not landed or not booking or landed.etag == booking.etag or (account and account.by_reference):
        return bool(landed and booking and landed.size != booking.size)
    return landed.size != booking.size or content_hash is None or content_hash != booking.content_hash


def _may_be_a_copy(landed: StoredFile, booking: Booking | None) -> bool:
    """Return whether only the bytes can show that a file is unchanged: same size, other tag."""
    if not booking or not booking.content_hash:
        return False
    return landed.size == booking.size and landed.etag != booking.etag


def _listed(positions: Positions) -> str:
    count, first = positions
    return f"{count:,} (at {', '.join(map(str, first))}{', …' if count > len(first) else ''})"


CHECK = Check("landing", SECTION, check)
