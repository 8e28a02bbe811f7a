"""The current contract of each stream, and the texts of earlier ones, in the state database.

Each micro-batch reads its contract here, so an applied contract is used from the next micro-batch on. The history of
applied contracts is in the lake itself, see :mod:`lakeproof.history.applied`.
"""

from contextlib import suppress

from sqlalchemy import Table, select
from sqlalchemy.exc import IntegrityError

from lakeproof.state.database import open_database, transaction
from lakeproof.state.schema import BEGUN, CONTRACT_TEXTS, CURRENT_CONTRACTS


class ContractLog:
    """The contracts of all streams. Open it in the process that uses it: it holds a database connection."""

    def __init__(self, database: str) -> None:
        self._engine = open_database(database)

    def keep(self, digest: str, text: bytes) -> None:
        """Keep the text of a contract, so that a micro-batch can be finished under the contract with which it began."""
        if self.text(digest) is None:
            self._insert(CONTRACT_TEXTS, {"digest": digest, "text": text})

    def text(self, digest: str) -> bytes | None:
        """Return the text that was kept under `digest`, or None."""
        with transaction(self._engine) as connection:
            return connection.scalar(select(CONTRACT_TEXTS.c.text).where(CONTRACT_TEXTS.c.digest == digest))

    def make_current(self, stream: str, digest: str, text: bytes) -> None:
        """Use a contract for all new micro-batches of `stream`."""
        self.keep(digest, text)
        with transaction(self._engine) as connection:
            known = connection.execute(
                CURRENT_CONTRACTS.update().where(CURRENT_CONTRACTS.c.stream == stream).values(digest=digest)
            )
        if known.rowcount == 0:
            self._insert(CURRENT_CONTRACTS, {"stream": stream, "digest": digest})

    def current(self, stream: str) -> str | None:
        """Digest of the current contract of `stream`; None before its first run."""
        with transaction(self._engine) as connection:
            return connection.scalar(select(CURRENT_CONTRACTS.c.digest).where(CURRENT_CONTRACTS.c.stream == stream))

    def begin(self, stream: str, start: str, end: str) -> str | None:
        """Return the digest of the contract for a micro-batch of a source whose offsets cannot record it.

        This is the current contract, or the contract of the first attempt if the micro-batch was begun before.
        """
        with transaction(self._engine) as connection:
            begun = connection.execute(select(BEGUN).where(BEGUN.c.stream == stream)).one_or_none()
            if begun and (begun.start_position, begun.end_position) == (start, end):
                return str(begun.digest)
        digest = self.current(stream)
        if digest is None:
            return None
        row = {"start_position": start, "end_position": end, "digest": digest}
        with transaction(self._engine) as connection:  # only the holder of the stream's lease calls this
            connection.execute(BEGUN.delete().where(BEGUN.c.stream == stream))
            connection.execute(BEGUN.insert(), {"stream": stream, **row})
        return digest

    def _insert(self, table: Table, row: dict[str, object]) -> None:
        """Insert a row unless another process inserts it concurrently."""
        with suppress(IntegrityError), transaction(self._engine) as connection:
            connection.execute(table.insert(), row)
