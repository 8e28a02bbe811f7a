"""The landing zone as a streaming source: Spark sees one small row per landed file, and its checkpoint fixes the files.

The rows have no content. The tasks of a micro-batch read the files themselves, see :mod:`consumer.sources.files.read`.

Spark starts several short-lived Python processes for a source. This module imports little, so that they start fast;
modules that only the reading process needs are imported where they are used.
"""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, SimpleDataSourceStreamReader
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.types import StructType

from consumer.bulletin import Bulletin

if TYPE_CHECKING:
    from consumer.sources.files.discovery import Discovery
    from consumer.sources.files.notifications import Notifications
    from lakeproof.landing.zone import LandingZone
    from lakeproof.settings import Settings
    from lakeproof.state.contract_log import ContractLog
    from lakeproof.state.landing_log import LandedFile, LandingLog, Position

_CONNECT_SECONDS = 10.0  # between two attempts to reach the topic of notifications

SCHEMA = (
    "seq long, name string, size long, etag string, landed_at timestamp, given_up boolean, "
    "start string, end string, contract string"
)
"""Columns of a row: those of a landed file, then the start and end of its micro-batch, and the contract's digest."""


def rows_as_files(rows: list[dict[str, Any]]) -> "list[LandedFile]":
    """Return the files in the rows of a micro-batch."""
    from lakeproof.state.landing_log import LandedFile

    names = [field.name for field in fields(LandedFile)]
    return [LandedFile(**{name: row[name] for name in names}) for row in rows]


@dataclass(frozen=True)
class LandingOptions:
    """Options of a reader of the landing zone."""

    query: str
    stream: str
    initial: "Position"  # a new checkpoint begins after it
    bulletin: Bulletin  # for the signal to start no more micro-batches, and the error of the reader
    until: int | None
    """Take files only up to this position of the landing log, and discover no others; None for an endless stream."""
    pickled: bytes  # settings and landing zone; only the reading process opens them
    most_bytes: int = 512 * 1024**2  # for the files of a micro-batch


def landing_source(options: LandingOptions) -> type[DataSource]:
    """Return the data source class of a stream, to register with Spark.

    The class has its options in its closure, so that no secret becomes an option that Spark's page shows.
    """

    class LandingSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"landing-{options.stream}"

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
            return _BesideDriver(LandingReader(options))

    return LandingSource


class _BesideDriver(_SimpleStreamReaderWrapper):
    """Reads every micro-batch beside the driver, including empty and repeated ones.

    Otherwise a task would read rows that Spark's wrapper has not kept: in the driver's Python, which executors lack.
    """

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Any, ...]]:  # noqa: N802
        kept: Iterator[tuple[Any, ...]] | None = super().getCache(start, end)
        return self.simple_reader.readBetweenOffsets(start, end) if kept is None else kept


class LandingReader(SimpleDataSourceStreamReader):
    """Reads positions of the landing log. An offset is ``{"seq": number, "chain": digest, "contract": digest}``.

    The contract is the current one when the micro-batch is formed: a contract that is applied while the stream runs
    takes effect with the next micro-batch, and a started micro-batch is finished under its own contract.
    """

    def __init__(self, options: LandingOptions) -> None:
        self._options = options
        self._next_sweep = 0.0
        self._next_connect = 0.0
        self._failure: Exception | None = None
        self._sweeping: Thread | None = None

    # Spark pickles the reader before it reads anything: objects that cannot be pickled are opened at first use.

    @cached_property
    def _opened(self) -> "tuple[Settings, LandingZone]":
        opened: tuple[Settings, LandingZone] = pickle.loads(self._options.pickled)  # noqa: S301 - our own
        return opened

    @property
    def _settings(self) -> "Settings":
        return self._opened[0]

    @cached_property
    def _log(self) -> "LandingLog":
        from lakeproof.state.landing_log import LandingLog

        return LandingLog(self._settings.state.database, self._options.stream)

    @cached_property
    def _contracts(self) -> "ContractLog":
        from lakeproof.state.contract_log import ContractLog

        return ContractLog(self._settings.state.database)

    @cached_property
    def _discovery(self) -> "Discovery":
        from datetime import timedelta

        from consumer.sources.files.discovery import Discovery

        return Discovery(self._opened[1], self._log, timedelta(seconds=self._settings.landing.settle_seconds))

    @cached_property
    def _notifications(self) -> "Notifications | None":
        topic = self._settings.landing.notification_topic
        if topic is None or not self._opened[1].root.startswith("s3://"):
            return None
        from consumer.sources.files.notifications import Notifications

        return Notifications(self._settings.kafka, topic)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset after the last file that the tables have."""
        with self._telling():
            return _offset(self._options.initial, self._contract())

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        """Return the next files, as many as a micro-batch takes, and the offset after them."""
        with self._telling():
            return self._next(start)

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Any, ...]]:  # noqa: N802
        """Return the same files again, under the contract recorded in the offset."""
        with self._telling():
            first, last = self._position(start), self._position(end)
            return _rows(self._log.files(first.seq, last.seq), first, last, end["contract"])

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Pass an error to the application as data: Spark would turn it into a long text."""
        try:
            yield
        except Exception as error:
            from lakeproof.errors import LakeproofError

            if not isinstance(error, LakeproofError):
                error = LakeproofError(
                    f"Cannot read the landing log: {type(error).__name__}: {error}",
                    f"Committed data is safe. Run the consumer again. Details: {self._settings.logs / 'spark.log'}",
                )
            self._options.bulletin.note(self._options.query, error)
            raise

    def _next(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        position = self._position(start)
        if self._options.bulletin.stop_file.exists():
            return iter(()), start
        if self._options.until is None:
            self._discover()
        head = self._log.head().seq if self._options.until is None else self._options.until
        most = self._settings.landing.max_files_per_micro_batch
        files = self._within_limits(self._log.files(position.seq, head, most))
        end = self._log.position(files[-1].seq) if files else None
        if end is None:
            return iter(()), start
        contract = self._contract()
        return _rows(files, position, end, contract), _offset(end, contract)

    def _discover(self) -> None:
        if self._failure:
            raise self._failure
        notified = self._notifications
        is_due = monotonic() >= self._next_sweep
        is_down = notified is not None and not notified.is_up and monotonic() >= self._next_connect
        if (is_due or is_down) and not (self._sweeping and self._sweeping.is_alive()):
            if is_due:
                self._next_sweep = monotonic() + self._settings.landing.sweep_seconds
            self._next_connect = monotonic() + _CONNECT_SECONDS
            self._sweeping = Thread(target=self._sweep, args=(is_due,), name="sweep", daemon=True)
            self._sweeping.start()
        if notified:
            self._discovery.named(notified.uris())
        if not (notified and notified.is_up):
            self._discovery.recent()

    def _sweep(self, is_due: bool) -> None:
        """Look at all files. Notifications are connected first: files that land meanwhile are named or listed."""
        try:
            begins = self._notifications is not None and self._notifications.connect()
            if is_due or begins:
                self._discovery.sweep()
        except Exception as error:  # noqa: BLE001 - raised by the next trigger
            self._failure = error

    def _within_limits(self, files: "list[LandedFile]") -> "list[LandedFile]":
        size = 0
        for count, file in enumerate(files):
            size += file.size
            if size > self._options.most_bytes and count > 0:
                return files[:count]
        return files

    def _contract(self) -> str:
        digest = self._contracts.current(self._options.stream)
        if digest is None:  # each start of a consumer makes a contract current before it reads
            from lakeproof.errors import LakeproofError

            raise LakeproofError(
                f"The landing log has no contract for the stream {self._options.stream!r}.",
                "Run `consumer run` again, to use the one in the contracts folder.",
            )
        return digest

    def _position(self, offset: dict[str, Any]) -> "Position":
        from lakeproof.state.landing_log import Position

        position = Position(int(offset["seq"]), offset["chain"])
        if not self._log.has(position):
            from lakeproof.errors import LakeproofError

            raise LakeproofError(
                f"The checkpoint is at position {position.seq:,}, which the landing log does not have. It is another "
                "landing log, or an older copy.",
                f"Restore it, or run `consumer reset {self._options.stream}`.",
            )
        return position


def _offset(position: "Position", contract: str) -> dict[str, Any]:
    return {"seq": position.seq, "chain": position.chain, "contract": contract}


def _rows(files: "list[LandedFile]", start: "Position", end: "Position", contract: str) -> Iterator[tuple[Any, ...]]:
    batch = (str(start), str(end), contract)
    rows = [(each.seq, each.name, each.size, each.etag, each.landed_at, each.given_up, *batch) for each in files]
    return iter(rows)
