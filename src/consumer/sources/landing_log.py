"""The landing log: which files were discovered, in which order.

A streaming offset is a position in this log, so ``(start, end]`` always selects the same files, whatever lands
later, under whatever name or time. It lies in SQLite (embedded) or Postgres.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    func,
    select,
)

from lakeproof.database import open_database, transaction
from lakeproof.storage import StoredFile

_metadata = MetaData()
_logs = Table(
    "landing_logs",
    _metadata,
    Column("stream", String, primary_key=True),
    Column("log_id", String, nullable=False),
)
_files = Table(
    "landed_files",
    _metadata,
    Column("stream", String, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("uri", String, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("etag", String, nullable=False),
    Column("landed_at", DateTime(timezone=True), nullable=False),
    UniqueConstraint("stream", "uri"),
)


@dataclass(frozen=True)
class LandedFile:
    """A discovered file.

    Parameters
    ----------
    seq
        Its position in the log, from 1.
    uri, size, etag
        As the listing showed it, size in bytes.
    landed_at
        Its modification time when it was discovered, UTC.
    """

    seq: int
    uri: str
    size: int
    etag: str
    landed_at: datetime


class LandingLog:
    """The log of one stream. Open it in the process that uses it: it holds a database connection.

    Parameters
    ----------
    database
        ``sqlite:///path`` or ``postgresql://…``.
    stream
        Name of the stream.

    Raises
    ------
    UnavailableError
        The database cannot be opened.
    """

    def __init__(self, database: str, stream: str) -> None:
        self._stream = stream
        self._engine = open_database(database, _metadata)
        self.log_id = self._log_id()

    def append(self, files: Iterable[StoredFile]) -> int:
        """Add the files that the log does not have yet, in the order given, and return how many.

        A file is known by its URI: one that was overwritten is not taken again.
        """
        new: dict[str, StoredFile] = {file.uri: file for file in files if file.uri not in self._known}
        if not new:
            return 0
        with transaction(self._engine) as connection:
            last = connection.scalar(select(func.max(_files.c.seq)).where(_files.c.stream == self._stream)) or 0
            connection.execute(
                _files.insert(),
                [
                    {
                        "stream": self._stream,
                        "seq": seq,
                        "uri": file.uri,
                        "size": file.size,
                        "etag": file.etag,
                        "landed_at": file.modified_at,
                    }
                    for seq, file in enumerate(new.values(), start=last + 1)
                ],
            )
        self._known.update(new)
        return len(new)

    def knows(self, uri: str) -> bool:
        """Whether the file is in the log."""
        return uri in self._known

    def newest_uris(self, count: int) -> list[str]:
        """The `count` greatest URIs by name, in ascending order."""
        query = select(_files.c.uri).where(_files.c.stream == self._stream).order_by(_files.c.uri.desc()).limit(count)
        with transaction(self._engine) as connection:
            return sorted(connection.scalars(query))

    def head(self) -> int:
        """Position of the newest file, 0 where there is none."""
        with transaction(self._engine) as connection:
            return connection.scalar(select(func.max(_files.c.seq)).where(_files.c.stream == self._stream)) or 0

    def files(self, start: int, end: int, limit: int | None = None) -> list[LandedFile]:
        """The files at positions ``start < seq <= end`` in order, at most `limit` of them."""
        query = (
            select(_files)
            .where(_files.c.stream == self._stream, _files.c.seq > start, _files.c.seq <= end)
            .order_by(_files.c.seq)
            .limit(limit)
        )
        with transaction(self._engine) as connection:
            return [
                LandedFile(row.seq, row.uri, row.size, row.etag, row.landed_at.replace(tzinfo=UTC))
                for row in connection.execute(query)
            ]

    def _log_id(self) -> str:
        mine = select(_logs.c.log_id).where(_logs.c.stream == self._stream)
        with transaction(self._engine) as connection:
            found = connection.scalar(mine)
            if found is None:
                found = uuid.uuid4().hex
                connection.execute(_logs.insert(), {"stream": self._stream, "log_id": found})
            return found

    @cached_property
    def _known(self) -> set[str]:
        with transaction(self._engine) as connection:
            return set(connection.scalars(select(_files.c.uri).where(_files.c.stream == self._stream)))
