"""Cost of a trigger for the landing zone's reader as the landing zone grows.

Run as a side: ``python -m benchmarks.flat_triggers LAYOUT SIZE...``. The landing zone is filled to each size in turn,
and recorded in the landing log; then new files land one by one, and a trigger looks for each.
"""

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.flat_figures import percentile
from benchmarks.harness import FOLDER_VARIABLE
from consumer.bulletin import Bulletin
from consumer.sources.files.stream import LandingOptions, LandingReader
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings, load_settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandingLog
from lakeproof.storage import open_storage
from lakeproof.storage.local import local_path
from lakeproof.storage.s3 import s3_client

HOURLY, ONE_FOLDER = "hourly", "one-folder"
FILES_OF_AN_HOUR = 1_000
SHORT_SWEEP_SECONDS = 5.0
"""``LAKE_SWEEP_SECONDS`` while waiting for the file with an old name."""

_STREAM = "events"
_TRIGGERS = 200
_CONTENT = b"[]"
_WRITERS = 16
_OLD = 1_577_836_800  # 2020-01-01, as a modification time
_GIVE_UP_SECONDS = 120.0


@dataclass(frozen=True)
class Zone:
    """A landing zone that grows.

    Parameters
    ----------
    settings
        Settings with its location.
    layout
        ``hourly``: sub-folders of :data:`FILES_OF_AN_HOUR` files; ``one-folder``: no sub-folders.
    """

    settings: Settings
    layout: str

    @property
    def root(self) -> str:
        return f"{self.settings.landing.uri}/{_STREAM}"

    def uri(self, index: int, folder: int) -> str:
        """Return the URI of a file; URIs sort by index, like names that contain a time."""
        name = f"{index:09d}.json"
        return f"{self.root}/{name}" if self.layout == ONE_FOLDER else f"{self.root}/hour-{folder:06d}/{name}"

    def name(self, uri: str) -> str:
        """Return the name of a file as the consumer records it."""
        return landing_zone(self.settings, _STREAM).name_of(uri)

    def fill(self, begin: int, end: int) -> None:
        """Write the files from `begin` up to, but not including, `end`."""
        put = _putter(self.settings)
        uris = [self.uri(index, index // FILES_OF_AN_HOUR) for index in range(begin, end)]
        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(put, uris, chunksize=100))

    def reader(self, sweep_seconds: float) -> LandingReader:
        """Make a reader like that of a starting consumer."""
        landing = self.settings.landing.model_copy(update={"sweep_seconds": sweep_seconds})
        settings = self.settings.model_copy(update={"landing": landing})
        bulletin = Bulletin(Path(os.environ[FOLDER_VARIABLE]))
        ContractLog(settings.state.database).make_current(_STREAM, "none", b"")
        begin = LandingLog(settings.state.database, _STREAM).base
        pickled = pickle.dumps((settings, landing_zone(settings, _STREAM)))
        return LandingReader(LandingOptions(_STREAM, _STREAM, begin, bulletin, None, pickled))


def main() -> None:
    """Fill and measure for each size; print the figures of each size."""
    layout, *sizes = sys.argv[1:]
    zone = Zone(load_settings(), layout)
    landed, found = 0, {}
    for size in map(int, sizes):
        began = time.monotonic()
        zone.fill(landed, size)
        landed = size
        filled = time.monotonic() - began
        offset, taken = _take_all(zone)
        triggers = _Triggers(zone, offset, landed)
        quiet = triggers.quiet()
        beside = triggers.beside_a_sweep()
        late = triggers.old_name()
        landed = triggers.landed
        found[str(size)] = {"filled_s": filled, "taken_s": taken} | quiet | beside | late
        print(size, found[str(size)], file=sys.stderr, flush=True)
    print(json.dumps({"sizes": found}))


def _take_all(zone: Zone) -> tuple[dict[str, Any], float]:
    """Read all landed files into the landing log, like a first sweep; return the offset after them, and the seconds."""
    began = time.monotonic()
    reader = zone.reader(sweep_seconds=3_600)
    offset = reader.initialOffset()
    for _ in _reads_until_swept(reader, offset):
        pass
    while True:
        rows, offset = reader.read(offset)
        if not list(rows):
            return offset, time.monotonic() - began


class _Triggers:
    """Times triggers, each of which finds one new file."""

    def __init__(self, zone: Zone, offset: dict[str, Any], landed: int) -> None:
        self._zone = zone
        self._storage = open_storage(zone.root, zone.settings.s3)
        self._folder = (landed - 1) // FILES_OF_AN_HOUR
        self._offset = offset
        self.landed = landed

    def quiet(self) -> dict[str, Any]:
        """Time triggers while no sweep runs."""
        reader = self._zone.reader(sweep_seconds=3_600)
        first = self._with_new_file(reader)
        _join_sweep(reader)
        seconds = [self._with_new_file(reader) for _ in range(_TRIGGERS)]
        return {"first_s": first, "p50_s": percentile(seconds, 0.5), "p99_s": percentile(seconds, 0.99)}

    def beside_a_sweep(self) -> dict[str, Any]:
        """Time triggers of a warmed-up reader during a sweep."""
        reader = self._zone.reader(sweep_seconds=3_600)
        self._with_new_file(reader)
        _join_sweep(reader)
        reader._next_sweep = 0.0  # makes the next trigger start a sweep
        began = time.monotonic()
        seconds = [self._with_new_file(reader)]
        while reader._sweeping is not None and reader._sweeping.is_alive():
            seconds.append(self._with_new_file(reader))
        return {
            "sweep_s": time.monotonic() - began,
            "beside_sweep_n": len(seconds),
            "beside_sweep_p50_s": percentile(seconds, 0.5),
            "beside_sweep_p99_s": percentile(seconds, 0.99),
        }

    def old_name(self) -> dict[str, Any]:
        """Time the wait for a file with a name that sorts first, and on a local disk with an old modification time."""
        reader = self._zone.reader(SHORT_SWEEP_SECONDS)
        for _ in _reads_until_swept(reader, self._offset):
            pass
        uri = f"{self._zone.uri(0, 0).removesuffix('.json')}-{self.landed:09d}.json"
        self._storage.write_new(uri, _CONTENT)
        if uri.startswith("file:"):
            os.utime(local_path(uri), (_OLD, _OLD))
        began = time.monotonic()
        while time.monotonic() - began < _GIVE_UP_SECONDS:
            rows, self._offset = reader.read(self._offset)
            if any(row[1] == self._zone.name(uri) for row in rows):
                _join_sweep(reader)
                return {"old_name_s": time.monotonic() - began}
            time.sleep(0.1)
        raise TimeoutError(f"{uri} was not taken within {_GIVE_UP_SECONDS:g} s.")

    def _with_new_file(self, reader: LandingReader) -> float:
        uri = self._zone.uri(self.landed, self._folder)
        self._storage.write_new(uri, _CONTENT)
        self.landed += 1
        began = time.perf_counter()
        rows, end = reader.read(self._offset)
        taken = [row[1] for row in rows]
        took = time.perf_counter() - began
        if taken != [self._zone.name(uri)]:
            raise AssertionError(f"A trigger took {taken} instead of {uri}.")
        self._offset = end
        return took


def _reads_until_swept(reader: LandingReader, offset: dict[str, Any]) -> Iterator[None]:
    reader.read(offset)
    while reader._sweeping is not None and reader._sweeping.is_alive():
        yield
        time.sleep(0.01)


def _join_sweep(reader: LandingReader) -> None:
    if reader._sweeping is not None:
        reader._sweeping.join()


def _putter(settings: Settings) -> Callable[[str], None]:
    """Return a function that writes files in bulk, without a producer's protection against crashes."""
    if settings.landing.uri.startswith("s3:"):
        client = s3_client(settings.s3)

        def put(uri: str) -> None:
            parts = urlsplit(uri)
            client.put_object(Bucket=parts.netloc, Key=parts.path.lstrip("/"), Body=_CONTENT)

        return put

    def write(uri: str) -> None:
        path = local_path(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_CONTENT)

    return write


if __name__ == "__main__":
    main()
