"""The landing log: all discovered files of a stream, in order.

An offset is a position in this log, so ``(start, end]`` always selects the same files, whatever lands later. A position
carries a digest of all names up to it (a hash chain): a log that was restored from an older copy and continued has
other digests, so that positions of the lost log are not mistaken for its own.

Names are looked up in the database, never loaded as a whole: a stream may have 15 million files a year. For old files,
the log keeps only hashes of the names.
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from statistics import median_low

from sqlalchemy import delete, func, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from lakeproof.state.database import open_database, transaction
from lakeproof.state.schema import FILES, GIVEN_UP, LOGS, PASSED_FILES
from lakeproof.storage import StoredFile

_AT_ONCE = 500  # names in one query
_ROWS_AT_ONCE = 10_000  # in one insert
_KEPT_WHOLE = 10_000  # newest files: S3 is listed from the thousandth-newest name on
SHORTENED_AT_ONCE = 2_000  # takes about a tenth of a second, in which no file can be added


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a landing log, after a file."""

    seq: int  # number of files up to this position
    chain: str  # digest of their names and the id of the log

    def __str__(self) -> str:
        return f"{self.seq}:{self.chain}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Parse the result of ``str``."""
        seq, _, chain = text.partition(":")
        return cls(int(seq), chain)


def is_origin(position: str) -> bool:
    """Whether the text is the position before the first file."""
    return Position.parse(position).seq == 0


@dataclass(frozen=True)
class LandedFile:
    """A discovered file."""

    seq: int  # 1-based position in the log
    name: str  # path below the stream's landing folder
    size: int
    etag: str
    landed_at: datetime  # modification time at discovery, UTC
    given_up: bool = False  # a missing file is accepted, see `consumer give-up`


class LandingLog:
    """The log of one stream. Open it in the process that uses it: it holds a database connection."""

    def __init__(self, database: str, stream: str) -> None:
        self._stream = stream
        self._mine = FILES.c.stream == stream
        self._engine = open_database(database)
        self._create()

    @property
    def base(self) -> Position:
        """The position after which the log begins; files up to it have no positions of their own."""
        with transaction(self._engine) as connection:
            return self._base(connection)

    def append(self, files: Iterable[tuple[str, StoredFile]]) -> int:
        """Append the new files in the given order, and return their number.

        Files are identified by name: an overwritten file is not added again. If another process appends at the same
        time, no file is added; the next call finds the files that are still new.
        """
        new = dict(self.new_among(files))
        if not new:
            return 0
        try:
            with transaction(self._engine) as connection:
                last = self._head(connection)
                rows = []
                chain = last.chain
                for seq, (name, file) in enumerate(new.items(), start=last.seq + 1):
                    chain = _link(chain, name)
                    rows.append(self._row(seq, name, file.size, file.etag, file.modified_at, chain))
                connection.execute(FILES.insert(), rows)
        except IntegrityError:  # another consumer took over while one of them was suspended
            return 0
        return len(new)

    def new_among(self, files: Iterable[tuple[str, StoredFile]]) -> Iterator[tuple[str, StoredFile]]:
        """Yield the files, with their names, that are not in the log."""
        rest = iter(files)
        while some := list(islice(rest, _ROWS_AT_ONCE)):
            known = self.known_among([name for name, _ in some])
            yield from (each for each in some if each[0] not in known)

    def known_among(self, names: Sequence[str]) -> set[str]:
        """Return the names that are in the log."""
        with transaction(self._engine) as connection:
            return known_names(connection, self._stream, names)

    def newest_names(self, count: int) -> list[str]:
        """Return the last `count` names in ascending order."""
        query = select(FILES.c.name).where(self._mine).order_by(FILES.c.name.desc()).limit(count)
        with transaction(self._engine) as connection:
            return sorted(connection.scalars(query))

    def head(self) -> Position:
        """Return the position after the newest file."""
        with transaction(self._engine) as connection:
            return self._head(connection)

    def position(self, seq: int) -> Position | None:
        """Return the position after the file at `seq`; None if the log does not have it."""
        with transaction(self._engine) as connection:
            return self._position(connection, seq)

    def has(self, position: Position) -> bool:
        """Whether the log has `position`."""
        return self.position(position.seq) == position

    def files(self, start: int, end: int, limit: int | None = None) -> list[LandedFile]:
        """Return the files at positions ``start < seq <= end`` in order, at most `limit`."""
        query = (
            select(FILES).where(self._mine, FILES.c.seq > start, FILES.c.seq <= end).order_by(FILES.c.seq).limit(limit)
        )
        with transaction(self._engine) as connection:
            given_up = self._given_up(connection)
            return [
                LandedFile(
                    row.seq, row.name, row.size, row.etag, row.landed_at.replace(tzinfo=UTC), row.name in given_up
                )
                for row in connection.execute(query)
            ]

    def look_again(self, files: Iterable[LandedFile]) -> None:
        """Update size, tag and time of files."""
        with transaction(self._engine) as connection:
            for file in files:
                connection.execute(
                    update(FILES)
                    .where(self._mine, FILES.c.name == file.name)
                    .values(size=file.size, etag=file.etag, landed_at=file.landed_at)
                )

    def give_up(self, names: Iterable[str]) -> None:
        """Let missing files become dead letters."""
        with transaction(self._engine) as connection:
            known = self._given_up(connection)
            new = [{"stream": self._stream, "name": name} for name in names if name not in known]
            if new:
                connection.execute(GIVEN_UP.insert(), new)

    def given_up(self) -> set[str]:
        """Return the names of the files that were given up."""
        with transaction(self._engine) as connection:
            return self._given_up(connection)

    def rebuild(self, base: Position, accounted: Iterable[LandedFile]) -> None:
        """Replace the log after `base` with the files of the ledger, in any order."""
        rest = iter(accounted)
        seq = base.seq  # there are at most as many files as positions up to `base`
        with transaction(self._engine) as connection:
            self._begin_at(connection, base)  # first, since it locks the log like `shorten`
            connection.execute(delete(FILES).where(self._mine))
            connection.execute(delete(PASSED_FILES).where(PASSED_FILES.c.stream == self._stream))
            while some := list(islice(rest, _ROWS_AT_ONCE)):
                rows = [
                    self._row(seq - index, file.name, file.size, file.etag, file.landed_at, None)
                    for index, file in enumerate(some)
                ]
                connection.execute(FILES.insert(), rows)
                seq -= len(some)

    def shorten(self, end: int, before: datetime) -> int:
        """Keep only hashes of the names of old files up to `end`; no consumer may resume from a position before `end`.

        Shortens the oldest :data:`SHORTENED_AT_ONCE` files if most of them landed before the time `before`, and returns
        their number. The limit keeps the wait of a concurrent consumer short.
        """
        with transaction(self._engine) as connection:
            # Locks the log (in SQLite, the database), so that it is not rebuilt between the reads and writes below.
            connection.execute(update(LOGS).where(LOGS.c.stream == self._stream).values(base_seq=LOGS.c.base_seq))
            last = min(end, self._head(connection).seq - _KEPT_WHOLE)
            wanted = select(FILES.c.seq, FILES.c.name, FILES.c.landed_at, FILES.c.chain)
            oldest = wanted.where(self._mine, FILES.c.seq <= last).order_by(FILES.c.seq)
            rows = connection.execute(oldest.limit(SHORTENED_AT_ONCE)).all()
            if len(rows) < SHORTENED_AT_ONCE:
                return 0
            # The median: a single file may have any time.
            if median_low(row.landed_at.replace(tzinfo=UTC) for row in rows) >= before:
                return 0
            hashes = [{"stream": self._stream, "name_hash": _hash(row.name)} for row in rows]
            connection.execute(PASSED_FILES.insert(), hashes)
            newest = rows[-1]
            connection.execute(delete(FILES).where(self._mine, FILES.c.seq <= newest.seq))
            if newest.chain:  # files that are known from the ledger have no digest
                self._begin_at(connection, Position(newest.seq, newest.chain))
            return len(rows)

    def _row(
        self, seq: int, name: str, size: int, etag: str, landed_at: datetime, chain: str | None
    ) -> dict[str, object]:
        return {
            "stream": self._stream,
            "seq": seq,
            "name": name,
            "size": size,
            "etag": etag,
            "landed_at": landed_at,
            "chain": chain,
        }

    def _given_up(self, connection: Connection) -> set[str]:
        return set(connection.scalars(select(GIVEN_UP.c.name).where(GIVEN_UP.c.stream == self._stream)))

    def _head(self, connection: Connection) -> Position:
        last = connection.scalar(select(func.max(FILES.c.seq)).where(self._mine))
        return self._position(connection, last or 0) or self._base(connection)

    def _position(self, connection: Connection, seq: int) -> Position | None:
        chain = connection.scalar(select(FILES.c.chain).where(self._mine, FILES.c.seq == seq))
        if chain is not None:
            return Position(seq, chain)
        base = self._base(connection)
        return base if base.seq == seq else None

    def _base(self, connection: Connection) -> Position:
        mine = select(LOGS.c.base_seq, LOGS.c.base_chain).where(LOGS.c.stream == self._stream)
        found = connection.execute(mine).one()
        return Position(found.base_seq, found.base_chain)

    def _begin_at(self, connection: Connection, base: Position) -> None:
        values = {"base_seq": base.seq, "base_chain": base.chain}
        connection.execute(update(LOGS).where(LOGS.c.stream == self._stream).values(values))

    def _create(self) -> None:
        mine = select(LOGS.c.stream).where(LOGS.c.stream == self._stream)
        with transaction(self._engine) as connection:
            if connection.scalar(mine) is not None:
                return
        # A unique id, so that this log does not have the positions of another one.
        row = {"stream": self._stream, "base_seq": 0, "base_chain": uuid.uuid4().hex}
        try:
            with transaction(self._engine) as connection:
                connection.execute(LOGS.insert(), row)
        except IntegrityError:
            pass  # another process was faster


def known_names(connection: Connection, stream: str, names: Sequence[str], end: int | None = None) -> set[str]:
    """Return the names that are in the landing log of a stream up to the position `end`."""
    found: set[str] = set()
    mine, passed = FILES.c.stream == stream, PASSED_FILES.c.stream == stream
    if end is not None:
        mine &= FILES.c.seq <= end
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        # In this order, a file that is shortened in between is found in one of the two tables.
        found.update(connection.scalars(select(FILES.c.name).where(mine, FILES.c.name.in_(some))))
        rest = {_hash(name): name for name in some if name not in found}
        if rest:
            hashes = select(PASSED_FILES.c.name_hash).where(passed, PASSED_FILES.c.name_hash.in_(rest))
            found.update(rest[each] for each in connection.scalars(hashes))
    return found


def _hash(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def _link(chain: str, name: str) -> str:
    return hashlib.blake2b(f"{chain}\n{name}".encode(), digest_size=16).hexdigest()
