"""What a look-up of 1,000 sources costs a ledger with a given number of sources.

Run as a side: ``python -m benchmarks.flat_ledger SOURCES``. The ledger is written as the consumer writes it: a data
file for each micro-batch, of sources whose names sort by time.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from benchmarks.flat_figures import percentile
from benchmarks.flat_tables import CHECKPOINT, append_many, marker
from consumer.bronze.append import target
from consumer.bronze.data_files import DataFileWriter
from consumer.bronze.recover import accounted_sources, has_other_checkpoints
from consumer.bronze.rows import MicroBatch, ledger_rows
from consumer.session import PLANNING_ONLY, start_session
from consumer.sources.landing_log import LandedFile
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import load_settings
from lakeproof.storage import open_storage
from lakeproof.tables import LEDGER, ensure_tables

_STREAM = "events"
_SOURCES_OF_A_MICRO_BATCH = 1_000
_START = datetime(2026, 11, 1, tzinfo=UTC)
_WARM_UPS = 10
_LOOK_UPS = 20


def main() -> None:
    """Write the ledger, then look up the sources of one of its micro-batches, again and again."""
    micro_batches = max(int(sys.argv[1]) // _SOURCES_OF_A_MICRO_BATCH, 1)
    settings = load_settings()
    spark = start_session(settings, "benchmark: ledger", PLANNING_ONLY)
    contract = load_contract(settings.contracts, _STREAM)
    ensure_tables(open_catalog(settings), contract)
    where = target(spark, LEDGER, marker(0))
    if where is None:
        raise AssertionError("A new ledger has a marker.")
    storage = open_storage(where.folder, settings.s3)
    appends = []
    for number in range(micro_batches):
        writer = DataFileWriter(where, storage)
        batch = MicroBatch(number, CHECKPOINT, contract, datetime.now(UTC))
        files = _files(number)
        writer.write(ledger_rows(files, {(file.uri, None): 100 for file in files}, {}, batch))
        appends.append((marker(number), writer.close()))
    append_many(spark, LEDGER, appends)
    wanted = [file.uri for file in _files(micro_batches // 2)]
    look_ups = [_look_up(spark, wanted) for _ in range(_WARM_UPS + _LOOK_UPS)][_WARM_UPS:]
    began = time.perf_counter()
    has_other_checkpoints(spark, _STREAM, CHECKPOINT)
    other = time.perf_counter() - began
    spark.stop()
    print(
        json.dumps(
            {"p50_s": percentile(look_ups, 0.5), "p99_s": percentile(look_ups, 0.99), "other_checkpoints_s": other}
        )
    )


def _files(micro_batch_id: int) -> list[LandedFile]:
    """Files of a micro-batch: one landed each second."""
    first = micro_batch_id * _SOURCES_OF_A_MICRO_BATCH
    found = []
    for number in range(first, first + _SOURCES_OF_A_MICRO_BATCH):
        at = _START + timedelta(seconds=number)
        uri = f"s3://landing/{_STREAM}/{at:dt=%Y-%m-%d/hh=%H/%Y%m%dT%H%M%S.%f}Z-{number:06d}.json"
        found.append(LandedFile(number + 1, uri, 20_000, f"{number:032x}", at))
    return found


def _look_up(spark: SparkSession, wanted: list[str]) -> float:
    began = time.perf_counter()
    found = accounted_sources(spark, _STREAM, wanted, "a new checkpoint")
    took = time.perf_counter() - began
    if found != set(wanted):
        raise AssertionError(f"The ledger knows {len(found)} of {len(wanted)} sources.")
    return took


if __name__ == "__main__":
    main()
