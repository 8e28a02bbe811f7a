"""Cost of a long history for the landing log: rebuilding it from the ledger, looking up names, storing them.

Run as a side: ``python -m benchmarks.flat_ledger SOURCES``. The ledger is written as the consumer writes it: one data
file per micro-batch, with sources whose names sort by time.
"""

import json
import resource
import sqlite3
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

from benchmarks.flat_figures import percentile
from benchmarks.flat_tables import CHECKPOINT, QUERY, append_many, marker
from consumer.iceberg.append import open_table
from consumer.iceberg.data_files import DataFileWriter
from consumer.layers.bronze.ledger import MicroBatch, Sums, ledger_rows
from consumer.sources.files.resume import place_to_go_on
from consumer.spark.session import PLANNING_ONLY, start_session
from lakeproof.addresses import sqlite_path
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings, load_settings
from lakeproof.state.landing_log import LandedFile, LandingLog, Position
from lakeproof.storage import open_storage
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_tables

_STREAM = "events"
_SOURCES_OF_A_MICRO_BATCH = 1_000
_START = datetime(2026, 11, 1, tzinfo=UTC)
_REBUILDS = 5
_LOOK_UPS = 50


def main() -> None:
    """Write the ledger, then rebuild the landing log from it several times; look up names, and shorten the log."""
    micro_batches = max(int(sys.argv[1]) // _SOURCES_OF_A_MICRO_BATCH, 1)
    settings = load_settings()
    spark = start_session(settings, "benchmark: ledger", PLANNING_ONLY)
    contract = load_contract(settings.contracts, _STREAM)
    ensure_tables(open_catalog(settings), contract)
    name = stream_tables(_STREAM).ledger
    where = open_table(spark, name, QUERY).target(marker(0))
    if where is None:
        raise AssertionError("A new ledger has a marker.")
    storage = open_storage(where.folder, settings.s3)
    appends = []
    for number in range(micro_batches):
        writer = DataFileWriter(where, storage)
        batch = MicroBatch(number, CHECKPOINT, contract, datetime.now(UTC))
        files = _files(number)
        writer.write(ledger_rows(files, {(file.name, None): 100 for file in files}, {}, {}, batch, Sums()))
        appends.append((marker(number), writer.close()))
    append_many(spark, name, appends)
    spark.stop()
    before = _memory()
    seconds = [_rebuild(settings, micro_batches) for _ in range(_REBUILDS)]
    figures = {"p50_s": percentile(seconds, 0.5), "p99_s": percentile(seconds, 0.99), "more_mib": _memory() - before}
    print(json.dumps(figures | _kept(settings, micro_batches)))


def _files(micro_batch_id: int) -> list[LandedFile]:
    """Return the files of a micro-batch; one file lands each second."""
    first = micro_batch_id * _SOURCES_OF_A_MICRO_BATCH
    found = []
    for number in range(first, first + _SOURCES_OF_A_MICRO_BATCH):
        at = _START + timedelta(seconds=number)
        name = f"{at:dt=%Y-%m-%d/hh=%H/%Y%m%dT%H%M%S.%f}Z-{number:06d}.json"
        found.append(LandedFile(number + 1, name, 20_000, f"{number:032x}", at))
    return found


def _rebuild(settings: Settings, micro_batches: int) -> float:
    """Delete the landing log, then start without a checkpoint; return the seconds."""
    for file in settings.home.glob("landing-log.db*"):
        file.unlink()
    log = LandingLog(settings.state.database, _STREAM)
    ledger = open_catalog(settings).load_table(stream_tables(_STREAM).ledger)
    accounted = Position.parse(marker(micro_batches - 1).end)
    began = time.perf_counter()
    # The number of positions equals the number of sources, so each source has one.
    place = Position(micro_batches * _SOURCES_OF_A_MICRO_BATCH, accounted.chain)
    place_to_go_on(settings, QUERY, log, ledger, place)
    took = time.perf_counter() - began
    last = _files(micro_batches - 1)[-1].name
    if not log.known_among([last]):
        raise AssertionError(f"The landing log does not know {last}.")
    return took


def _kept(settings: Settings, micro_batches: int) -> dict[str, float]:
    """Return the time to look up names, half of them new, and the bytes per file in the log, whole and shortened."""
    log = LandingLog(settings.state.database, _STREAM)
    names = [file.name for file in _files(micro_batches // 2)]
    names = [*names[::2], *(f"new-{name}" for name in names[1::2])]

    def looked_up() -> float:
        took = []
        for _ in range(_LOOK_UPS):
            began = time.perf_counter()
            if len(log.known_among(names)) != len(names) // 2:
                raise AssertionError("The landing log does not know its files.")
            took.append(time.perf_counter() - began)
        return percentile(took, 0.5)

    sources = micro_batches * _SOURCES_OF_A_MICRO_BATCH
    figures = {"look_up_s": looked_up(), "bytes_of_a_file": _bytes(settings) / sources}
    while log.shorten(sources, datetime.max.replace(tzinfo=UTC)):
        pass
    return figures | {"look_up_shortened_s": looked_up(), "bytes_shortened": _bytes(settings) / sources}


def _bytes(settings: Settings) -> int:
    """Return the bytes in use in the state database, without free pages, which SQLite keeps and uses again."""
    with closing(sqlite3.connect(str(sqlite_path(settings.state.database)))) as connection:
        used, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (used - free) * size


def _memory() -> float:
    """Return the highest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
