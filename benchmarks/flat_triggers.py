"""Cost of a look for the next micro-batch as the landing zone grows.

Run as a side: ``python -m benchmarks.flat_triggers LAYOUT SIZE...``. The landing zone is filled to each size in turn,
and recorded in the landing log; then new files land one by one, and a trigger looks for each.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from benchmarks.flat_figures import percentile
from consumer.sources.files.micro_batches import MicroBatches
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings, load_settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandingLog, Position
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
_MOST_BYTES = 1 << 40


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

    def micro_batches(self, sweep_seconds: float) -> MicroBatches:
        """Return the micro-batches of a starting consumer."""
        landing = self.settings.landing.model_copy(update={"sweep_seconds": sweep_seconds})
        settings = self.settings.model_copy(update={"landing": landing})
        ContractLog(settings.state.database).make_current(_STREAM, "none", b"")
        log = LandingLog(settings.state.database, _STREAM)
        return MicroBatches(settings, _STREAM, landing_zone(settings, _STREAM), log, None)


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
        position, taken = _take_all(zone)
        triggers = _Triggers(zone, position, landed)
        quiet = triggers.quiet()
        beside = triggers.beside_a_sweep()
        late = triggers.old_name()
        landed = triggers.landed
        found[str(size)] = {"filled_s": filled, "taken_s": taken} | quiet | beside | late
        print(size, found[str(size)], file=sys.stderr, flush=True)
    print(json.dumps({"sizes": found}))


def _take_all(zone: Zone) -> tuple[Position, float]:
    """Take all landed files into the landing log, like a first sweep; return the position after them, and seconds."""
    began = time.monotonic()
    running = zone.micro_batches(sweep_seconds=3_600)
    position = LandingLog(zone.settings.state.database, _STREAM).base
    for _ in _looks_until_swept(running, position):
        pass
    while held := running.next(position, _MOST_BYTES):
        position = Position.parse(held.end)
    return position, time.monotonic() - began


class _Triggers:
    """Times triggers, each of which finds one new file."""

    def __init__(self, zone: Zone, position: Position, landed: int) -> None:
        self._zone = zone
        self._storage = open_storage(zone.root, zone.settings.s3)
        self._folder = (landed - 1) // FILES_OF_AN_HOUR
        self._position = position
        self.landed = landed

    def quiet(self) -> dict[str, Any]:
        """Time triggers while no sweep runs."""
        running = self._zone.micro_batches(sweep_seconds=3_600)
        first = self._with_new_file(running)
        _join_sweep(running)
        seconds = [self._with_new_file(running) for _ in range(_TRIGGERS)]
        return {"first_s": first, "p50_s": percentile(seconds, 0.5), "p99_s": percentile(seconds, 0.99)}

    def beside_a_sweep(self) -> dict[str, Any]:
        """Time warmed-up triggers during a sweep."""
        running = self._zone.micro_batches(sweep_seconds=3_600)
        self._with_new_file(running)
        _join_sweep(running)
        running._next_sweep = 0.0  # makes the next trigger start a sweep
        began = time.monotonic()
        seconds = [self._with_new_file(running)]
        while running._sweeping is not None and running._sweeping.is_alive():
            seconds.append(self._with_new_file(running))
        return {
            "sweep_s": time.monotonic() - began,
            "beside_sweep_n": len(seconds),
            "beside_sweep_p50_s": percentile(seconds, 0.5),
            "beside_sweep_p99_s": percentile(seconds, 0.99),
        }

    def old_name(self) -> dict[str, Any]:
        """Time the wait for a file with a name that sorts first, and on a local disk with an old modification time."""
        running = self._zone.micro_batches(SHORT_SWEEP_SECONDS)
        for _ in _looks_until_swept(running, self._position):
            pass
        uri = f"{self._zone.uri(0, 0).removesuffix('.json')}-{self.landed:09d}.json"
        self._storage.write_new(uri, _CONTENT)
        if uri.startswith("file:"):
            os.utime(local_path(uri), (_OLD, _OLD))
        began = time.monotonic()
        while time.monotonic() - began < _GIVE_UP_SECONDS:
            if self._zone.name(uri) in self._take(running):
                _join_sweep(running)
                return {"old_name_s": time.monotonic() - began}
            time.sleep(0.1)
        raise TimeoutError(f"{uri} was not taken within {_GIVE_UP_SECONDS:g} s.")

    def _with_new_file(self, running: MicroBatches) -> float:
        uri = self._zone.uri(self.landed, self._folder)
        self._storage.write_new(uri, _CONTENT)
        self.landed += 1
        began = time.perf_counter()
        taken = self._take(running)
        took = time.perf_counter() - began
        if taken != [self._zone.name(uri)]:
            raise AssertionError(f"A trigger took {taken} instead of {uri}.")
        return took

    def _take(self, running: MicroBatches) -> list[str]:
        held = running.next(self._position, _MOST_BYTES)
        if held is None:
            return []
        self._position = Position.parse(held.end)
        return [part.name for part in held.parts]


def _looks_until_swept(running: MicroBatches, position: Position) -> Iterator[None]:
    running.next(position, _MOST_BYTES)
    while running._sweeping is not None and running._sweeping.is_alive():
        yield
        time.sleep(0.01)


def _join_sweep(running: MicroBatches) -> None:
    if running._sweeping is not None:
        running._sweeping.join()


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
