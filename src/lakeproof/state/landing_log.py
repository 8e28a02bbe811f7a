"""The landing log: all discovered files of a stream, in order.

A streaming offset is a position in this log, so ``(start, end]`` always selects the same files, whatever lands later.
A position carries a digest of all names up to it (a hash chain): a log that was restored from an older copy and
continued has other digests, so that positions of the lost log are not mistaken for its own.
"""

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from sqlalchemy import delete, func, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from lakeproof.state.database import open_database, transaction
from lakeproof.state.schema import FILES, GIVEN_UP, LOGS
from lakeproof.storage import StoredFile

_AT_ONCE = 500  # names in one query


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
        self.base = self._base()

    def append(self, files: Iterable[tuple[str, StoredFile]]) -> int:
        """Append the new files in the given order, and return how many.

        Files are identified by name: an overwritten one is not added again. If another process appends at the same
        time, none is added; the next call finds those that are still new.
        """
        new: dict[str, StoredFile] = {name: file for name, file in files if name not in self._known}
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
            del self._known
            return 0
        self._known.update(new)
        return len(new)

    def knows(self, name: str) -> bool:
        """Whether the log has the file."""
        return name in self._known

    def known_among(self, names: Sequence[str]) -> set[str]:
        """Those of some names that the log has, without loading all that it has."""
        found: set[str] = set()
        with transaction(self._engine) as connection:
            for start in range(0, len(names), _AT_ONCE):
                some = FILES.c.name.in_(names[start : start + _AT_ONCE])
                found.update(connection.scalars(select(FILES.c.name).where(self._mine, some)))
        return found

    def newest_names(self, count: int) -> list[str]:
        """The last `count` names in ascending order."""
        query = select(FILES.c.name).where(self._mine).order_by(FILES.c.name.desc()).limit(count)
        with transaction(self._engine) as connection:
            return sorted(connection.scalars(query))

    def head(self) -> Position:
        """Position after the newest file."""
        with transaction(self._engine) as connection:
            return self._head(connection)

    def position(self, seq: int) -> Position | None:
        """Position after the file at `seq`; None if the log has none."""
        with transaction(self._engine) as connection:
            return self._position(connection, seq)

    def has(self, position: Position) -> bool:
        """Whether the log has `position`."""
        return self.position(position.seq) == position

    def files(self, start: int, end: int, limit: int | None = None) -> list[LandedFile]:
        """The files at positions ``start < seq <= end`` in order, at most `limit` of them."""
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
        """Update size and tag of files."""
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
        """Names of the files that were given up."""
        with transaction(self._engine) as connection:
            return self._given_up(connection)

    def rebuild(self, base: Position, accounted: Iterable[LandedFile]) -> None:
        """Replace the log after `base` with the files of the ledger."""
        ordered = sorted(accounted, key=lambda file: (file.landed_at, file.name))
        # There are at most as many as positions up to `base`.
        first = base.seq - len(ordered) + 1
        rows = [
            self._row(seq, file.name, file.size, file.etag, file.landed_at, None)
            for seq, file in enumerate(ordered, start=first)
        ]
        with transaction(self._engine) as connection:
            connection.execute(delete(FILES).where(self._mine))
            connection.execute(
                update(LOGS).where(LOGS.c.stream == self._stream).values(base_seq=base.seq, base_chain=base.chain)
            )
            if rows:
                connection.execute(FILES.insert(), rows)
        self.base = base
        self.__dict__.pop("_known", None)

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
        found = self._position(connection, max(last or 0, self.base.seq))
        return found or self.base

    def _position(self, connection: Connection, seq: int) -> Position | None:
        if seq == self.base.seq:
            return self.base
        chain = connection.scalar(select(FILES.c.chain).where(self._mine, FILES.c.seq == seq))
        return None if chain is None else Position(seq, chain)

    def _base(self) -> Position:
        mine = select(LOGS.c.base_seq, LOGS.c.base_chain).where(LOGS.c.stream == self._stream)
        with transaction(self._engine) as connection:
            found = connection.execute(mine).one_or_none()
        if found is None:
            # A unique id, so that positions of other logs are not found in this one.
            row = {"stream": self._stream, "base_seq": 0, "base_chain": uuid.uuid4().hex}
            try:
                with transaction(self._engine) as connection:
                    connection.execute(LOGS.insert(), row)
            except IntegrityError:
                pass  # another process was faster
            with transaction(self._engine) as connection:
                found = connection.execute(mine).one()
        return Position(found.base_seq, found.base_chain)

    @cached_property
    def _known(self) -> set[str]:
        with transaction(self._engine) as connection:
            return set(connection.scalars(select(FILES.c.name).where(self._mine)))


def _link(chain: str, name: str) -> str:
    return hashlib.blake2b(f"{chain}\n{name}".encode(), digest_size=16).hexdigest()
