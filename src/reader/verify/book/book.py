"""The book of proofs in one run of verify for a stream: reads the last clean proof, and records the new one.

Rows of append-only tables are proven by hash: the rows of proven micro-batches must still have the sum in the book, no
matter which files contain them now, and the rows of each new micro-batch the hash in the ledger. Files that are in the
book are not read. In tables that are compared by time, only the time ranges of files that were added or removed since
the last proof are compared again.
"""

import os
import platform
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from getpass import getuser
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from lakeproof.catalog import catalog_errors, table_or_none
from lakeproof.contracts import Field
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.state import proofs
from lakeproof.state.database import open_database
from lakeproof.state.proofs import Proof, ProofKind, ProofOutcome, ProvenFile
from lakeproof.state.schema import is_current
from lakeproof.tables.expired import Expired, expired_of
from lakeproof.tables.names import (
    EXPIRED,
    HASH_OF,
    MICRO_BATCH_ID,
    ROW_HASH,
    StreamTables,
    silver_tables,
    stream_tables,
)
from lakeproof.tables.schemas import ROW_HASH_KIND
from reader.connect import Session
from reader.verify.book.files import data_files
from reader.verify.book.hashes import (
    HASHES,
    Total,
    drop_hashes,
    other_than_booked,
    read_hashes,
    read_times,
    total_of,
    totals_by_file,
)
from reader.verify.findings import SHOWN_EXAMPLES, Findings
from reader.verify.spans import Span
from reader.verify.tables.layers import FoundT, read_state
from reader.verify.tables.reach import Reach, reach_of
from reader.verify.tables.removals import Removals
from reader.verify.tables.since import since_views

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

OTHER_THAN_PROVEN = "other rows than were proven"
OTHER_THAN_BOOKED = "other rows than the ledger has"
NO_PROOF = "the book has no clean proof of it"
FILES_CHANGED = "data files with other rows than were proven"


@dataclass(frozen=True)
class Looked:
    """A table, its number of data files, and how many were read."""

    table: str
    files: int
    read: int
    how: str


class Book:
    """The book of proofs for a stream, as one run of verify reads and extends it."""

    def __init__(self, settings: Settings, session: Session, stream: str, kind: ProofKind) -> None:
        self._settings = settings
        self._session = session
        self._stream = stream
        self._began = datetime.now(UTC)
        self.kind = kind
        self.was_asked_for_new = kind is ProofKind.NEW
        self._base: Proof | None = None
        self._known: dict[str, dict[str, ProvenFile]] = {}
        self._files: list[ProvenFile] = []
        self._reached: dict[str, Any] = {"hash": ROW_HASH_KIND, "tables": {}}
        self.why = ""  # reason why no earlier proof is used
        self.tables = stream_tables(stream)  # tables or views from which checks read bronze, dead letters and attempts
        self.looked: list[Looked] = []
        self.found = Findings()
        self.reach = Reach()
        self.removals = Removals(session, self.tables, exists=False)
        self._has_attempts = False
        self._erasures: int | None = None  # snapshot of their account

    @property
    def since(self) -> Proof | None:
        """The proof that is continued; None if everything is proven."""
        return self._base if self.kind is ProofKind.NEW else None

    @property
    def proven(self) -> Reach:
        """The proven micro-batches of bronze; they need not be read again."""
        return self._reach_then(stream_tables(self._stream).ledger) if self.since else Reach()

    def open(self, catalog: "Catalog", fields: Iterable[Field], *, of_topic: bool) -> None:
        """Read the book and prove the tables of the stream against it."""
        names = stream_tables(self._stream)
        self.reach = reach_of(self._session, names.ledger)  # before the tables, which are never behind the ledger
        with catalog_errors():
            has_attempts = self._has_attempts = catalog.table_exists(names.attempts)
            removals = table_or_none(catalog, names.removals)
            self._erasures = _snapshot_of(removals)  # before the account is read
            expired = self._expired(catalog)
        self.removals = Removals(
            self._session, names, exists=removals is not None, expired=expired, is_trusted=self.kind is ProofKind.NEW
        )
        self.removals.load(has_attempts=has_attempts)
        self._find_base(catalog, names)
        if self._base and not self.has_same_ledger(catalog, names.ledger):
            self._base = None
            self._known.clear()
            self.why = f"{names.ledger} has other rows than were proven: it was restored, or changed"
        if not self.since and self.kind is ProofKind.NEW:
            self.kind = ProofKind.ALL
        booked = {names.bronze: "bronze", names.dead_letters: "dead_letters"}
        self.prove(catalog, names.ledger, self.reach, column="micro_batch_id")
        for name in (names.bronze, names.dead_letters, names.attempts):
            column = booked.get(name)
            ledger = self.booked(catalog, names.ledger, column) if column else None
            # A field of the contract may have had the name of a column of the other tables.
            self.prove(catalog, name, self.reach, fields if name == names.bronze else (), booked=ledger)
        self.tables = self.removals.whole()
        if self.since:
            of = self.proven
            self.tables = since_views(self._session, self.tables, of, has_attempts=has_attempts, of_topic=of_topic)

    def is_outdated(self, catalog: "Catalog") -> bool:
        """Return whether checks have read different states, or views that lack rows.

        Retention or an erasure has removed rows since the book was opened; or a replay, the first of all, has attempts
        that the views of the new rows do not have.
        """
        names = stream_tables(self._stream)
        with catalog_errors():
            return (
                self._expired(catalog) != self.removals.expired
                or _snapshot_of(table_or_none(catalog, names.removals)) != self._erasures
                or (bool(self.since) and catalog.table_exists(names.attempts) != self._has_attempts)
            )

    def _expired(self, catalog: "Catalog") -> dict[str, Expired]:
        names, silver = stream_tables(self._stream), silver_tables(self._stream)
        found = {}
        for name in (names.dead_letters, silver.conflicts, silver.late):
            table = table_or_none(catalog, name)
            if table and EXPIRED in table.properties:
                found[name] = expired_of(table.properties)
        return found

    def prove(
        self,
        catalog: "Catalog",
        name: str,
        reach: Reach,
        fields: Iterable[Field] = (),
        *,
        column: str = MICRO_BATCH_ID,
        booked: str | None = None,
        continues: bool = True,
    ) -> None:
        """Prove the rows of an append-only table, in the micro-batches of `reach`.

        `booked` is SQL of the hashes in the ledger; `continues` says whether to use the earlier proof of the table.
        """
        with catalog_errors():
            table = table_or_none(catalog, name)
            if table is None:
                return
            snapshot = table.current_snapshot()
            files = data_files(table, snapshot, self._settings.s3)
        then = self._table_then(table, name) if continues else None
        expired = self.removals.expired_of(name)
        if self._reach_then(name).before < expired.before:
            then = None  # only the total of the expired rows is known, not how much of it the proof had covered
        known = self._known.get(name, {}) if then else {}
        same = {location for location, tag in files.items() if location in known and known[location].tag == tag}
        read = files.keys() - (same if self.since else set())
        self._read(table, snapshot, files, read, fields, column)
        kept = Total()
        for location in files.keys() - read:
            kept += Total(known[location].rows, known[location].hash)
        before = self._reach_then(name) if then else Reach()
        removed = self.removals.hashes_of(name)
        if then:
            old = kept + total_of(self._session, f"NOT {before.is_beyond('micro_batch')}")
            old += self._removed(removed, before) + Total(expired.rows, expired.hash)
            self._compare(name, before, old, Total(int(then["rows"]), int(then["hash"])))
            if not self.since:
                self._compare_files(name, {location: known[location] for location in same})
        if booked:
            new = before if self.since and then else Reach()
            if removed:
                booked += f" UNION ALL SELECT micro_batch, -hash FROM ({removed})"
            condition = f"{new.is_beyond('micro_batch')} AND NOT {reach.is_beyond('micro_batch')}"
            self._compare_booked(name, booked, condition, expired if expired.before > new.before else None)
        whole = kept + total_of(self._session, f"NOT {reach.is_beyond('micro_batch')}") + self._removed(removed, reach)
        whole += Total(expired.rows, expired.hash)
        mine = self._note(name, table)
        mine |= {"rows": whole.rows, "hash": whole.hash, **reach.as_json()}
        whole_files = totals_by_file(self._session, f"NOT {reach.is_beyond('micro_batch')}")
        self._keep(name, files, {location: (each.rows, each.hash) for location, each in whole_files.items()}, known)
        how = "hashes of new files" if self.since and then else "hashes of all rows"
        self.looked.append(Looked(name, len(files), len(read), how))
        drop_hashes(self._session)

    def _removed(self, removed: str | None, reach: Reach) -> Total:
        """Return the total of the removed rows in some micro-batches, which count as if they were present."""
        condition = f"NOT {reach.is_beyond('micro_batch')}"
        return total_of(self._session, condition, f"({removed})") if removed else Total()

    def booked(self, catalog: "Catalog", ledger: str, rows: str) -> str | None:
        """Return SQL of the hashes in a ledger for a kind of rows, by micro-batch; None if they were not recorded."""
        with catalog_errors():
            table = catalog.load_table(ledger)
        column = f"{rows}{HASH_OF}"
        if table.properties.get(ROW_HASH) != ROW_HASH_KIND or column not in self._session.columns(ledger):
            return None
        return f"SELECT micro_batch_id AS micro_batch, {column} AS hash FROM {ledger}"

    def changed_times(self, table: "Table", name: str, snapshot_id: int | None, column: str) -> list[Span] | None:
        """Return the time spans of rows in data files added or removed since the last proof; None if unknown."""
        snapshot = table.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
        with catalog_errors():
            files = data_files(table, snapshot, self._settings.s3)
        then = self._table_then(table, name)
        known = self._known.get(name, {}) if then else {}
        same = {location for location, tag in files.items() if location in known and known[location].tag == tag}
        read = files.keys() - (same if self.since else set())
        some = read if len(read) < len(files) else None
        times = read_times(self._session, table, snapshot, some, column) if snapshot and read else {}
        self._note(name, table)
        self._keep(
            name, files, {location: (rows, 0, low, high) for location, (rows, low, high) in times.items()}, known
        )
        is_part = bool(self.since and then)
        self.looked.append(Looked(name, len(files), len(read), "changed times" if is_part else "all rows"))
        if not is_part:
            return None
        gone = [(each.rows, each.low, each.high) for location, each in known.items() if location not in same]
        spans = []
        for rows, low, high in [*times.values(), *gone]:
            if rows and (low is None or high is None):
                return None
            if low is not None and high is not None:
                spans.append(Span(low, high + 1))
        return spans

    def note(self, key: str, value: Any) -> None:
        """Store a value for the next proof."""
        self._reached[key] = value

    def reached(self, key: str, otherwise: Any) -> Any:
        """Return the value that this proof has stored under a key."""
        return self._reached.get(key, otherwise)

    def noted(self, key: str) -> Any:
        """Return the value that the continued proof has stored under a key; None if no proof is continued."""
        return self.since.reached.get(key) if self.since else None

    def is_same(self, catalog: "Catalog", name: str) -> bool:
        """Return whether a table is the same one that the continued proof covered."""
        if not self.since:
            return False
        with catalog_errors():
            return self._table_then(catalog.load_table(name), name) is not None

    def has_same_ledger(self, catalog: "Catalog", name: str) -> bool:
        """Return whether the proven rows of a ledger are unchanged; if it was restored or edited, its proof is void."""
        with catalog_errors():
            table = catalog.load_table(name)
            snapshot = table.current_snapshot()
            files = data_files(table, snapshot, self._settings.s3)
        then = self._table_then(table, name)
        if then is None:
            return False
        known, before = self._known.get(name, {}), self._reach_then(name)
        same = {location for location, tag in files.items() if location in known and known[location].tag == tag}
        self._read(table, snapshot, files, files.keys() - same, (), "micro_batch_id")
        has = total_of(self._session, f"NOT {before.is_beyond('micro_batch')}")
        for location in same:
            has += Total(known[location].rows, known[location].hash)
        drop_hashes(self._session)
        return has == Total(int(then["rows"]), int(then["hash"]))

    def record(self, faults: int, clean: bool) -> Proof:
        """Record the proof in the book; return it with its number, which is 0 if that fails."""
        base = self.since
        proof = Proof(
            self._stream,
            self.kind,
            self._began,
            datetime.now(UTC),
            f"{_user()}@{platform.node()}",
            ProofOutcome.CLEAN if clean else ProofOutcome.FAILED,
            faults,
            base.number if base else None,
            versions={name: version(name) for name in ("lakeproof", "duckdb", "pyiceberg")},
            reached=self._reached,
        )
        if not read_book(self._settings, is_current):
            return proof
        engine = open_database(self._settings.state.database)
        try:
            return replace(proof, number=proofs.record(engine, proof, self._files))
        except (LakeproofError, SQLAlchemyError):
            return proof
        finally:
            engine.dispose()

    def _find_base(self, catalog: "Catalog", names: StreamTables) -> None:
        found = read_book(self._settings, lambda connection: proofs.last_clean(connection, self._stream))
        if not found:
            self.why = NO_PROOF
            return
        base, files = found
        then = base.reached.get("tables", {})
        with catalog_errors():
            for name in (names.bronze, names.dead_letters, names.ledger):
                table = table_or_none(catalog, name)
                if not table or then.get(name, {}).get("id") != str(table.metadata.table_uuid):
                    self.why = f"the book is of another {name}"
                    return
        if base.reached.get("hash") != ROW_HASH_KIND:
            self.why = "the book has hashes of another kind"
            return
        self._base = base
        for file in files:
            self._known.setdefault(file.table, {})[file.location] = file

    def _read(
        self,
        table: "Table",
        snapshot: "Snapshot | None",
        files: Collection[str],
        read: Collection[str],
        fields: Iterable[Field],
        column: str,
    ) -> None:
        if snapshot is None or not read:
            self._session.fetch(
                f"CREATE OR REPLACE TABLE {HASHES} (location VARCHAR, micro_batch BIGINT, rows BIGINT, hash BIGINT)"
            )
        else:
            some = read if len(read) < len(files) else None
            read_hashes(self._session, table, snapshot, some, fields, column)

    def _table_then(self, table: "Table", name: str) -> Mapping[str, Any] | None:
        """Return the book's entry for a table; None without one, or if another table has its name."""
        then: Mapping[str, Any] | None = self._base.reached["tables"].get(name) if self._base else None
        return then if then and then["id"] == str(table.metadata.table_uuid) else None

    def _reach_then(self, name: str) -> Reach:
        then = self._base.reached["tables"].get(name, {}) if self._base else {}
        return Reach(then.get("before", 0), tuple(then.get("but", ())))

    def _compare(self, name: str, before: Reach, has: Total, had: Total) -> None:
        if has == had:
            return
        counts = f"{has.rows:,} rows, expected {had.rows:,}" if has.rows != had.rows else "values differ"
        text = f"micro-batches before {before.before:,}: {counts}"
        self.found.add(name, OTHER_THAN_PROVEN, max(abs(had.rows - has.rows), 1), [text])

    def _compare_files(self, name: str, known: Mapping[str, ProvenFile]) -> None:
        """Find files that were changed in place although storage reports the same tag."""
        now = totals_by_file(self._session)
        changed = [
            location
            for location, each in sorted(known.items())
            if (each.rows, each.hash) != (now.get(location, Total()).rows, now.get(location, Total()).hash)
        ]
        if changed:
            self.found.add(name, FILES_CHANGED, len(changed), changed[:SHOWN_EXAMPLES])

    def _compare_booked(self, name: str, booked: str, condition: str, expired: Expired | None) -> None:
        other = other_than_booked(self._session, booked, condition, expired)
        if other:
            old = f"micro-batches before {expired.before:,}" if expired else ""
            examples = [
                f"{old if number < 0 else f'micro-batch {number:,}'}: {rows:,} rows"
                for number, rows in other[:SHOWN_EXAMPLES]
            ]
            self.found.add(name, OTHER_THAN_BOOKED, len(other), examples)

    def _note(self, name: str, table: "Table") -> dict[str, Any]:
        mine: dict[str, Any] = {"id": str(table.metadata.table_uuid)}
        self._reached["tables"][name] = mine
        return mine

    def _keep(
        self,
        name: str,
        files: Mapping[str, str | None],
        read: Mapping[str, tuple[Any, ...]],
        known: Mapping[str, ProvenFile],
    ) -> None:
        """Store the totals of the data files of a table for the book."""
        for location, tag in files.items():
            if tag is not None and location in read:
                self._files.append(ProvenFile(name, location, tag, *read[location]))
            elif tag is not None and location in known and known[location].tag == tag:
                self._files.append(known[location])


def read_book(settings: Settings, read: Callable[[Connection], FoundT]) -> FoundT | None:
    """Read the book; return None if its database is missing, unreadable or of another version."""
    return read_state(settings, lambda connection: read(connection) if is_current(connection) else None, None)


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):  # a container may have a user without a name
        return str(os.getuid())


def _snapshot_of(table: "Table | None") -> int | None:
    """Return the id of the current snapshot; None without a table or a snapshot."""
    snapshot = table.current_snapshot() if table else None
    return snapshot.snapshot_id if snapshot else None
