"""The landing log: which files were discovered, in which order.

A streaming offset is a position in this log, so ``(start, end]`` always selects the same files, whatever lands
later, under whatever name or time.

A position carries a digest of all names up to it (a hash chain). A log that was restored from an older copy, and went
on from there, has other digests: a position of the log as it was is then not found in it, nor mistaken for another.
"""

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from sqlalchemy import delete, func, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from lakeproof.state.database import open_database, transaction
from lakeproof.state.schema import FILES, GIVEN_UP, LOGS
from lakeproof.storage import StoredFile


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a landing log, behind a file."""

    seq: int  # number of files up to this position
    chain: str  # digest of their names and the id of the log

    def __str__(self) -> str:
        return f"{self.seq}:{self.chain}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Read what ``str`` made."""
        seq, _, chain = text.partition(":")
        return cls(int(seq), chain)


def is_origin(position: str) -> bool:
    """Whether a position, as text, has no file before it."""
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
        """Add the files that the log does not have yet, by name and in the order given, and return how many.

        A file is known by its name: one that was overwritten is not taken again. If another process adds files at the
        same time, none is added: the next look finds those that are still new.
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
        except IntegrityError:  # of a consumer that took over while this one was suspended, or the other way round
            del self._known
            return 0
        self._known.update(new)
        return len(new)

    def knows(self, name: str) -> bool:
        """Whether the file is in the log."""
        return name in self._known

    def newest_names(self, count: int) -> list[str]:
        """The `count` greatest names, in ascending order."""
        query = select(FILES.c.name).where(self._mine).order_by(FILES.c.name.desc()).limit(count)
        with transaction(self._engine) as connection:
            return sorted(connection.scalars(query))

    def head(self) -> Position:
        """Position behind the newest file."""
        with transaction(self._engine) as connection:
            return self._head(connection)

    def position(self, seq: int) -> Position | None:
        """The position behind the file at `seq`; None where the log has no such position of its own."""
        with transaction(self._engine) as connection:
            return self._position(connection, seq)

    def has(self, position: Position) -> bool:
        """Whether `position` is one of this log, as it is now."""
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
        """Write down size and tag of files as they are now."""
        with transaction(self._engine) as connection:
            for file in files:
                connection.execute(
                    update(FILES)
                    .where(self._mine, FILES.c.name == file.name)
                    .values(size=file.size, etag=file.etag, landed_at=file.landed_at)
                )

    def give_up(self, names: Iterable[str]) -> None:
        """Let files that are gone become dead letters, instead of waiting for them."""
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
        """Rebuild the log from `base` on, with the files of the ledger; forget everything else in it."""
        ordered = sorted(accounted, key=lambda file: (file.landed_at, file.name))
        # They are at most as many as the positions that were given out up to `base`.
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
            # A log of its own: no position of another one is found in it.
            row = {"stream": self._stream, "base_seq": 0, "base_chain": uuid.uuid4().hex}
            try:
                with transaction(self._engine) as connection:
                    connection.execute(LOGS.insert(), row)
            except IntegrityError:
                pass  # another program was quicker
            with transaction(self._engine) as connection:
                found = connection.execute(mine).one()
        return Position(found.base_seq, found.base_chain)

    @cached_property
    def _known(self) -> set[str]:
        with transaction(self._engine) as connection:
            return set(connection.scalars(select(FILES.c.name).where(self._mine)))


def _link(chain: str, name: str) -> str:
    return hashlib.blake2b(f"{chain}\n{name}".encode(), digest_size=16).hexdigest()
