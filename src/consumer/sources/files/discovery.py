"""Discovery: find the files that landed, except those that are still being written.

A trigger looks only at recent files, so that its cost does not grow with the landing zone, or at files named by
notifications. Now and then, a sweep looks at all files, and takes those that came late under an old name, or were not
named.
"""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from heapq import heappush, heappushpop
from itertools import islice
from threading import Lock

from lakeproof.landing.zone import LandingZone
from lakeproof.state.landing_log import LandingLog
from lakeproof.storage import StoredFile

# On S3, a trigger lists after the key that is this many places before the newest known key.
_RECENT_FILES = 1000
_STATS_AT_ONCE = 8
# Files of a bucket, listed by name, that are kept in memory (200 MB) and appended to the log at once.
TAKEN_AT_ONCE = 100_000


class Discovery:
    """Moves files from listings into the landing log.

    A file counts as complete once it has not changed for `settle`, unless the storage shows complete files only.
    """

    def __init__(self, zone: LandingZone, log: LandingLog, settle: timedelta) -> None:
        self._zone = zone
        self._log = log
        self._settle = settle.total_seconds()
        # Files that are still young: the last state of each, and since when (monotonic) the state is the same.
        self._young: dict[str, tuple[StoredFile, float]] = {}
        self._lock = Lock()  # a sweep may run at the same time as the trigger
        self._fills_log = False  # whether a sweep of a bucket fills an empty log
        # The name `_RECENT_FILES` places before the end of the last sweep: a bucket may have many unread files.
        self._swept = ""
        # Names in the log from the last look at recent files: the next look finds most of them again.
        self._known: set[str] = set()

    def recent(self) -> int:
        """Take new files among the recent ones; return their number."""
        newest = self._log.newest_names(_RECENT_FILES)
        after = max(newest[0] if newest else "", self._swept)
        if self._fills_log:
            return 0  # this would list all files, as the sweep does
        listed = self._zone.list_recent(after or None)
        # The next look at a bucket begins after these files. A local folder is listed only if it has changed, so all of
        # its files are looked at now.
        found = dict(islice(listed, TAKEN_AT_ONCE) if self._zone.storage.shows_whole_files else listed)
        new = dict(self._log.new_among(each for each in found.items() if each[0] not in self._known))
        if found:
            self._known = found.keys() - new.keys()
        return self._take(new.items())

    def sweep(self) -> int:
        """Take new files from the whole landing zone; return their number.

        Files of a bucket are taken while the bucket is listed, so that the first of millions are read at once.
        """
        in_order = self._zone.storage.shows_whole_files
        self._fills_log = in_order and not self._log.newest_names(1)
        try:
            last: list[str] = []  # a heap of the last names
            new = self._log.new_among(_noting(self._zone.list(), last))
            at_once = TAKEN_AT_ONCE if in_order else None
            taken = self._take(list(islice(new, at_once)))
            for some in iter(lambda: list(islice(new, at_once)), []):
                taken += self._take(some)
        finally:
            self._fills_log = False
        self._swept = last[0] if last else ""
        return taken

    def named(self, uris: Iterable[str]) -> int:
        """Take new files that notifications name, if they exist; return their number."""
        named = {self._zone.name_of(uri) for uri in uris if self._zone.contains(uri) and not uri.endswith("/")}
        # Other files may not even be looked at: a policy of the bucket may deny it.
        names = {name for name in named if not self._zone.ignores_name(name)}
        new = names - self._log.known_among([*names])
        if not new:
            return 0
        with ThreadPoolExecutor(_STATS_AT_ONCE) as pool:
            seen = zip(new, pool.map(self._zone.stat, new), strict=True)
            return self._take([(name, file) for name, file in seen if file])

    def sweep_until_settled(self) -> list[str]:
        """Sweep, give young files time to settle, and return the names of files that still change."""
        self.sweep()
        if self._young:
            time.sleep(self._settle)
            self._take(())
        return sorted(self._young)

    def _take(self, new: Iterable[tuple[str, StoredFile]]) -> int:
        """Take files whose names were not in the log; return the number of files appended to the log."""
        with self._lock:
            candidates = {name: seen for name in self._young if (seen := self._zone.stat(name))}
            for name, file in new:
                if not self._zone.ignores(name, file):
                    candidates.setdefault(name, file)
            whole, young = [], {}
            for name, file in candidates.items():
                since = self._unchanged_since(name, file)
                if self._zone.storage.shows_whole_files or self._is_settled(file, since):
                    whole.append((name, file))
                else:
                    young[name] = (file, since)
            self._young = young
            return self._log.append(sorted(whole, key=lambda each: each[0]))

    def _unchanged_since(self, name: str, file: StoredFile) -> float:
        before, since = self._young.get(name, (None, 0.0))
        return since if before and before.etag == file.etag else time.monotonic()

    def _is_settled(self, file: StoredFile, since: float) -> bool:
        # The second clock is for files with a modification time in the future.
        age = (datetime.now(UTC) - file.modified_at).total_seconds()
        return max(age, time.monotonic() - since) >= self._settle


def _noting(listed: Iterable[tuple[str, StoredFile]], last: list[str]) -> Iterator[tuple[str, StoredFile]]:
    """Yield the listed files, and keep the last of their names in a heap."""
    for name, file in listed:
        if len(last) < _RECENT_FILES:
            heappush(last, name)
        else:
            heappushpop(last, name)
        yield name, file
