"""Landed files as the source of a stream, in the order of the landing log."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter

import structlog
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from consumer.sources.envelope import Envelope, Recovered
from consumer.sources.files.discovery import Discovery
from consumer.sources.files.micro_batches import MicroBatches
from consumer.sources.files.read import envelopes, recover
from consumer.sources.files.resume import place_to_go_on
from consumer.sources.source import Held, Source
from consumer.spreading import balanced
from lakeproof.checkpoint import landing_position, read_checkpoint
from lakeproof.cluster import check_reachable
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.kafka.recorded import check_comes_from
from lakeproof.landing.root import open_landing_zone
from lakeproof.landing.zone import LandingZone, landing_zone
from lakeproof.reasons import Reason
from lakeproof.settings import Limits, Settings
from lakeproof.state.landing_log import LandedFile, LandingLog, Position, is_origin
from lakeproof.storage import StoredFile
from lakeproof.storage.local import local_path
from lakeproof.tables.names import stream_tables

log = structlog.get_logger()

# Two groups of files per core, so that a slow group leaves other cores idle for half of its time only; but no more, and
# no smaller ones than this, since each group makes its own data files, one for each day.
GROUPS_PER_CORE = 2
BYTES_PER_GROUP = 8 * 1024**2
BYTES_PER_CORE = 32 * 1024**2  # in a micro-batch of many cores
LEAST_BYTES_OF_MICRO_BATCH = 1024**3


def most_bytes(settings: Settings, cores: int) -> int:
    """Return the size limit of the files in a micro-batch: the setting, or enough for all cores."""
    by_cores = max(LEAST_BYTES_OF_MICRO_BATCH, cores * BYTES_PER_CORE)
    return settings.landing.max_bytes_per_micro_batch or by_cores


@dataclass(frozen=True)
class FileReader:
    """Reads landed files within a task; see :class:`consumer.sources.source.Reader`."""

    zone: LandingZone

    def groups(self, parts: Sequence[LandedFile], cores: int) -> list[list[LandedFile]]:
        """Divide files into groups of about the same number of bytes, each in the order of the landing log."""
        wanted = 1 + sum(file.size for file in parts) // BYTES_PER_GROUP
        by_seq = attrgetter("seq")
        dealt = balanced(
            sorted(parts, key=by_seq), min(wanted, len(parts), GROUPS_PER_CORE * cores), attrgetter("size")
        )
        return [sorted(group, key=by_seq) for group in dealt]

    def envelopes(
        self, parts: Iterable[LandedFile], limits: Limits, touched: Callable[[LandedFile], None] | None
    ) -> Iterator[Envelope]:
        """Read files, one after the other."""
        return envelopes(parts, self.zone, limits, touched)

    def read_again(self, source: str, etag: str, limits: Limits) -> Envelope:
        """Read a file, if it is still the one that landed."""
        seen = self.zone.stat(source)
        if seen is None:
            detail = f"{self.zone.uri_of(source)} was removed"
            return Envelope(None, source, None, (Reason.ABSENT, detail))
        (found,) = envelopes(
            [LandedFile(0, source, seen.size, etag, seen.modified_at, given_up=True)], self.zone, limits
        )
        return found

    def recover(self, source: str, value: bytes, limits: Limits) -> Recovered | None:
        """Return the sound beginning of a file that cannot be unpacked."""
        return recover(source, value, limits)


class FileSource(Source[LandedFile]):
    """The landing zone of a stream. With `available_now`, it ends with the files that have landed by now."""

    def __init__(self, settings: Settings, stream: str, query: str, available_now: bool) -> None:
        self._settings = settings
        self._stream = stream
        self._query = query
        self._available_now = available_now
        self._found: LandingZone | None = None
        self._log = LandingLog(settings.state.database, stream)
        self._waiting: dict[str, int] = {}
        self._micro_batches: MicroBatches | None = None

    @property
    def root(self) -> str:
        """URI of the landing folder."""
        return self._zone.root

    @property
    def reader(self) -> FileReader:
        """The reader of files for tasks."""
        return FileReader(self._zone)

    def check_without_tables(self) -> None:
        """Refuse to start from the beginning if a checkpoint shows that there were tables."""
        checkpoint = read_checkpoint(self._settings, self._query)
        if checkpoint and checkpoint.end.seq:
            raise LakeproofError(
                f"The catalog has no table {stream_tables(self._stream).bronze}, but the checkpoint of {self._query} "
                f"has passed {checkpoint.end.seq:,} files.",
                f"Restore the catalog, or check LAKE_CATALOG_URI. Or run `consumer reset {self._stream}`: then "
                "everything in the landing zone is read again.",
            )

    def prepare(self, catalog: Catalog) -> None:
        """Check that the landing zone is the recorded one; the first time, record it, and where its files begin."""
        check_comes_from(self._stream, catalog.load_table(stream_tables(self._stream).ledger).properties, None)
        self._found = open_landing_zone(catalog, self._settings, self._stream)
        self._check_reachable()

    def recall(self, catalog: Catalog) -> None:
        """Read the landing zone from the ledger."""
        ledger = catalog.load_table(stream_tables(self._stream).ledger).properties
        self._found = landing_zone(self._settings, self._stream, ledger)
        self._check_reachable()

    def resume(self, ledger: Table, accounted: str | None) -> str:
        """Find where to resume; with `available_now`, also discover all files that have landed."""
        known = Position.parse(accounted) if accounted else None
        start = place_to_go_on(self._settings, self._query, self._log, ledger, known)
        if known and not self._zone.is_there():
            raise UnavailableError(
                f"The landing folder {local_path(self.root)} does not exist, but {start.seq:,} files of it were read.",
                "Mount its disk, or create the folder.",
            )
        until = self._discover_all() if self._available_now else None
        self._waiting = {} if until is None else {"files": until - start.seq}
        self._micro_batches = MicroBatches(self._settings, self._stream, self._zone, self._log, until)
        return str(start)

    def waiting(self) -> dict[str, int]:
        """Return the number of files that have landed after the start."""
        return self._waiting

    def next(self, after: str, cores: int) -> Held[LandedFile] | None:
        """Return the next files of the landing log."""
        if self._micro_batches is None:
            raise RuntimeError("A source is resumed before it is read.")
        return self._micro_batches.next(Position.parse(after), most_bytes(self._settings, cores))

    def offset(self, position: str, contract: str) -> str:
        """Return a position of the landing log as JSON."""
        at = Position.parse(position)
        return json.dumps({"seq": at.seq, "chain": at.chain, "contract": contract})

    def parse_offset(self, offset: str) -> Position:
        """Parse the position of an offset, without its contract."""
        return landing_position(offset)

    def size_of(self, parts: Sequence[LandedFile]) -> dict[str, int]:
        """Return the number of files, and their bytes."""
        return {"files": len(parts), "bytes": sum(file.size for file in parts)}

    def held_between(self, start: str, end: str, names: Callable[[], Iterable[str]]) -> list[LandedFile]:
        """Return the files between two positions of the landing log; by `names` if the log lacks the positions."""
        first, last = Position.parse(start), Position.parse(end)
        if self._log.has(first) and self._log.has(last):
            return self._log.files(first.seq, last.seq)
        given_up = self._log.given_up()
        found = []
        for name in sorted(names()):
            seen = self._zone.stat(name) or StoredFile(self._zone.uri_of(name), 0, "absent", datetime.now(UTC))
            found.append(LandedFile(0, name, seen.size, seen.etag, seen.modified_at, name in given_up))
        return found

    def still_next(self, start: str, end: str, accounted: str | None) -> tuple[str, str] | None:
        """Return the current range of a paused micro-batch, if the landing log has its files."""
        return super().still_next(start, end, accounted) if self._log.has(Position.parse(end)) else None

    def look_again(self, parts: Iterable[LandedFile]) -> None:
        """Remember the tags of files at the time of reading."""
        self._log.look_again(list(parts))

    def is_origin(self, position: str) -> bool:
        """Return whether a position is the beginning of a landing log."""
        return is_origin(position)

    @property
    def _zone(self) -> LandingZone:
        if self._found is None:
            raise RuntimeError("A source is prepared before it is resumed.")
        return self._found

    def _check_reachable(self) -> None:
        check_reachable(self._settings, {f"the landing zone of {self._stream}": self.root})

    def _discover_all(self) -> int:
        discovery = Discovery(self._zone, self._log, timedelta(seconds=self._settings.landing.settle_seconds))
        growing = discovery.sweep_until_settled()
        if growing:
            log.warning("files skipped for now: still being written", files=growing)
        return self._log.head().seq
