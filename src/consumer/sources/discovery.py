"""Discovery: finding the files that landed, and leaving those that are still being written.

A trigger looks at what is recent only, so that its cost does not grow with the landing zone; a sweep looks at
everything, now and then, and takes what came in late under an old name.
"""

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from threading import Lock

from consumer.sources.landing_log import LandingLog
from lakeproof.storage import Storage, StoredFile

TEMPORARY_SUFFIX = ".tmp"
"""A file whose name ends so is never read: writers use it until the file is whole."""

# On S3 a trigger lists behind the key that stands this many places before the newest one known.
_RECENT_FILES = 1000


class Discovery:
    """Moves files from listings into the landing log.

    Parameters
    ----------
    storage
        The stream's landing zone.
    log
        Its landing log.
    settle
        For how long a file must have been left alone before it counts as whole; not used where the storage shows
        whole files only.
    """

    def __init__(self, storage: Storage, log: LandingLog, settle: timedelta) -> None:
        self._storage = storage
        self._log = log
        self._settle = settle.total_seconds()
        # Files that are still young: the last look at each, and since when (monotonic) it looks the same.
        self._young: dict[str, tuple[StoredFile, float]] = {}
        self._lock = Lock()  # a sweep may run beside the trigger

    def recent(self) -> int:
        """Take new files among the recent ones; return how many."""
        newest = self._log.newest_uris(_RECENT_FILES)
        return self._take(list(self._storage.list_recent(newest[0] if newest else None)))

    def sweep(self) -> int:
        """Take new files wherever they are; return how many."""
        return self._take(list(self._storage.list()))

    def sweep_until_settled(self) -> list[str]:
        """Sweep, give young files the time to settle, and return the URIs of those that still change."""
        self.sweep()
        if self._young:
            time.sleep(self._settle)
            self._take([])
        return sorted(self._young)

    def _take(self, listed: Iterable[StoredFile]) -> int:
        with self._lock:
            candidates = {uri: seen for uri in self._young if (seen := self._storage.stat(uri))}
            for file in listed:
                if not self._log.knows(file.uri) and not file.uri.endswith(TEMPORARY_SUFFIX):
                    candidates.setdefault(file.uri, file)
            whole, young = [], {}
            for file in candidates.values():
                since = self._unchanged_since(file)
                if self._storage.shows_whole_files or self._is_settled(file, since):
                    whole.append(file)
                else:
                    young[file.uri] = (file, since)
            self._young = young
            return self._log.append(sorted(whole, key=lambda file: file.uri))

    def _unchanged_since(self, file: StoredFile) -> float:
        before, since = self._young.get(file.uri, (None, 0.0))
        return since if before and before.etag == file.etag else time.monotonic()

    def _is_settled(self, file: StoredFile, since: float) -> bool:
        # The second clock is for files whose modification time lies in the future.
        age = (datetime.now(UTC) - file.modified_at).total_seconds()
        return max(age, time.monotonic() - since) >= self._settle
