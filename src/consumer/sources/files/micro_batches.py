"""Micro-batches of landed files: find new files, and take them in the order of the landing log."""

from datetime import timedelta
from functools import cached_property
from threading import Thread
from time import monotonic

from consumer.sources.files.discovery import Discovery
from consumer.sources.files.notifications import Notifications
from consumer.sources.source import Held
from lakeproof.errors import LakeproofError
from lakeproof.landing.zone import LandingZone
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandedFile, LandingLog, Position

_CONNECT_SECONDS = 10.0  # between two attempts to reach the topic of notifications


class MicroBatches:
    """Forms the micro-batches of a stream.

    The contract is the current one when the micro-batch is formed: a contract that is applied while the stream runs
    takes effect with the next micro-batch.
    """

    def __init__(self, settings: Settings, stream: str, zone: LandingZone, log: LandingLog, until: int | None) -> None:
        self._settings = settings
        self._stream = stream
        self._zone = zone
        self._log = log
        # The last position of the landing log to take, without looking for more files; None for an endless stream.
        self._until = until
        self._contracts = ContractLog(settings.state.database)
        self._discovery = Discovery(zone, log, timedelta(seconds=settings.landing.settle_seconds))
        self._next_sweep = 0.0
        self._next_connect = 0.0
        self._failure: Exception | None = None
        self._sweeping: Thread | None = None

    def next(self, after: Position, most_bytes: int) -> Held[LandedFile] | None:
        """Return the next files, as many as a micro-batch takes; None without new files."""
        if not self._log.has(after):
            raise LakeproofError(
                f"The tables are at position {after.seq:,}, which the landing log does not have. It is another landing "
                "log, or an older copy.",
                f"Restore it, or run `consumer reset {self._stream}`.",
            )
        if self._until is None:
            self._discover()
        head = self._log.head().seq if self._until is None else self._until
        most_files = self._settings.landing.max_files_per_micro_batch
        files = within(most_bytes, self._log.files(after.seq, head, most_files))
        if not files:
            return None
        last = files[-1].seq
        return Held(files, str(after), str(self._log.position(last)), self._contract(), more=last < head)

    @cached_property
    def _notifications(self) -> Notifications | None:
        topic = self._settings.landing.notification_topic
        if topic is None or not self._zone.root.startswith("s3://"):
            return None
        return Notifications(self._settings.kafka, topic)

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
        except Exception as error:  # noqa: BLE001 - raised by the next look
            self._failure = error

    def _contract(self) -> str:
        digest = self._contracts.current(self._stream)
        if digest is None:  # each start of a consumer makes a contract current before it reads
            raise LakeproofError(
                f"The landing log has no contract for the stream {self._stream!r}.",
                "Run `consumer run` again, to use the one in the contracts folder.",
            )
        return digest


def within(most_bytes: int, files: list[LandedFile]) -> list[LandedFile]:
    """Return the first files up to a number of bytes, and at least one."""
    size = 0
    for count, file in enumerate(files):
        size += file.size
        if size > most_bytes and count > 0:
            return files[:count]
    return files
