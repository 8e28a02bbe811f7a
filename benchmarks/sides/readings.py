"""Common parts of the samples benchmark: a growing silver, and a digest of samples to compare the sides by."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.harness import ROOT
from consumer.iceberg.append import append_once, open_table
from consumer.iceberg.data_files import DataFileWriter
from consumer.iceberg.marker import Marker
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.gold.samples import Grouping, Samples
from lakeproof.gold.samples_file import load_samples
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.storage import open_storage
from lakeproof.tables.names import silver_query, silver_tables
from lakeproof.tables.schemas import ensure_silver_tables
from reader.connect import connect

STREAM = "sensors"
SECOND = 1_000_000
BEGIN = 1_800_000_000 * SECOND
WARM_UP = 3
"""Number of untimed commits, since the JVM is still compiling."""
_SEED = 16
_LATEST_SECONDS = 25
_ANOMALIES = 0.001


@dataclass(frozen=True)
class Load:
    """Size of the load.

    Parameters
    ----------
    devices
        Number of devices.
    every
        Seconds between two measurements of a device.
    step
        Seconds of event time per commit of silver.
    minutes
        Total minutes of event time.
    """

    devices: int
    every: int
    step: int
    minutes: int

    def commits(self) -> Iterator[pa.RecordBatch]:
        """Yield the readings of each commit, in order of arrival: each up to 25 s late, and none too late."""
        chosen = np.random.default_rng(_SEED)
        count = self.devices * self.step // self.every
        for number in range(self.minutes * 60 // self.step):
            landed = BEGIN + (number * self.step + np.arange(1, count + 1) * self.step / count) * SECOND
            at = (landed - chosen.random(count) ** 4 * _LATEST_SECONDS * SECOND).astype("int64")
            device = (number * count + np.arange(count)) % self.devices
            value = chosen.normal(50, 0.3, count).round(3)
            value = np.where(chosen.random(count) < _ANOMALIES, -value, value)
            yield pa.RecordBatch.from_pydict(
                {
                    "device_id": pa.array([f"device-{each:05d}" for each in device]),
                    "sensor_freq": pa.array(value),
                    "event_time": pa.array(at, pa.timestamp("us", tz="UTC")),
                    "_micro_batch_id": pa.array(np.full(count, number)),
                }
            )


@dataclass(frozen=True)
class Kept:
    """State that a side keeps for open windows.

    Parameters
    ----------
    memory
        Bytes of state in memory.
    disk
        Bytes of state on disk; for lakeproof, of the files of silver to read again.
    """

    memory: int
    disk: int


class Silver:
    """A silver that grows by one file per commit, written as in the consumer's silver query.

    Parameters
    ----------
    spark, settings
        Session and settings of a lake.
    """

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        contract = load_contract(settings.contracts, STREAM)
        ensure_silver_tables(open_catalog(settings), contract, silver_tables(STREAM))
        text = (settings.contracts / f"{STREAM}.yaml").read_bytes()
        ContractLog(settings.state.database).make_current(STREAM, contract.digest, text)
        self._spark, self._settings, self._digest = spark, settings, contract.digest
        self._watermark = 0
        self._end = 0

    def keep(self, readings: pa.RecordBatch) -> None:
        """Commit readings."""
        newest = max(readings.column("event_time").cast(pa.int64()).to_pylist())
        self._watermark = max(self._watermark, newest)
        start, self._end = self._end, self._end + 1
        marker = Marker("", start, self._digest, str(start), str(self._end), contents=str(self._watermark))
        table = open_table(self._spark, silver_tables(STREAM).kept, silver_query(STREAM))
        target = table.target(marker)
        if target is None:
            raise RuntimeError("Silver has this commit already.")
        writer = DataFileWriter(target, open_storage(target.folder, self._settings.s3))
        schema = pa.schema([field for field in target.schema if field.name in readings.schema.names])
        writer.write(readings.select(schema.names).cast(schema))
        append_once(table, marker, writer.close())


def product(settings: Settings, by: Grouping) -> Samples:
    """Return the product of the demo without its optional detectors."""
    text = (ROOT / "gold" / "sensor_samples.yaml").read_text().replace("by: device", f"by: {by}")
    folder = settings.home / "gold"
    folder.mkdir(parents=True)
    before, _, _ = text.partition("detectors:")
    (folder / "sensor_samples.yaml").write_text(before)
    return load_samples(folder, "sensor_samples", lambda stream: load_contract(settings.contracts, stream))


def follow(silver: Silver, load: Load, take: Callable[[], None], kept: Callable[[], Kept]) -> dict[str, Any]:
    """Make commits, and let a side process each; return its figures. The first commits are not timed."""
    seconds, readings, state = 0.0, 0, []
    for number, batch in enumerate(load.commits()):
        silver.keep(batch)
        began = monotonic()
        take()
        if number >= WARM_UP:
            seconds += monotonic() - began
            readings += batch.num_rows
        state.append(kept())
    return {"seconds": seconds, "readings": readings, "state": [asdict(each) for each in state]}


def compared(settings: Settings, table: str, load: Load) -> dict[str, Any]:
    """Return the number and digest of a table's samples in windows that all sides have closed."""
    window, event_time = (f"(epoch_us({column}) - {BEGIN})" for column in ("window_start", "event_time"))
    until = (load.minutes - 3) * 60 * SECOND
    with connect(settings) as session:
        found = session.connection.execute(
            f"SELECT {window} AS w, device_id, {event_time} AS t, sensor_freq, roles FROM {table} "
            f"WHERE {window} < {until} ORDER BY w, t, device_id, sensor_freq"
        ).fetchall()
    return {"samples": len(found), "digest": hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]}
