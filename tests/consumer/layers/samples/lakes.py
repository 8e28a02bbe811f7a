"""Lakes whose silver of readings is filled by a test, and products of samples over it."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.consumer.lake import rows
from tests.consumer.layers.samples.model import SECOND, Row, anomalies, time, windows
from tests.consumer.taking import take_all
from tests.lakes import changed

from consumer.iceberg.append import append_once, open_table
from consumer.iceberg.data_files import DataFileWriter
from consumer.iceberg.marker import Marker
from consumer.layers.samples.reading import Reading
from consumer.layers.samples.sample import SamplesLayer
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.gold.samples import Samples
from lakeproof.gold.samples_file import load_samples
from lakeproof.settings import S3Settings, Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.storage import open_storage
from lakeproof.tables.names import samples_tables, silver_query, silver_tables
from lakeproof.tables.schemas import ensure_silver_tables

ROOT = Path(__file__).parents[4]
SILVER = silver_tables("sensors")
TEXT = (ROOT / "gold" / "sensor_samples.yaml").read_text()
BY_WINDOW = TEXT.replace("by: device", "by: window")
NOON = 20_000 * 86_400 * SECOND + 12 * 3_600 * SECOND
HORIZON = 30 * SECOND


def sensors_lake(settings: Settings, folder: Path) -> Settings:
    """Return a lake of the stream sensors, with a folder for products."""
    (folder / "gold").mkdir()
    settings = changed(settings, LAKE_GOLD=str(folder / "gold"))
    contract = load_contract(settings.contracts, "sensors")
    ensure_silver_tables(open_catalog(settings), contract, SILVER)
    text = (settings.contracts / "sensors.yaml").read_bytes()
    ContractLog(settings.state.database).make_current("sensors", contract.digest, text)
    return settings


def write_samples(settings: Settings, text: str) -> Samples:
    """Write the file of a product; return the product."""
    name = text.partition("name: ")[2].splitlines()[0]
    (settings.gold / f"{name}.yaml").write_text(text)
    return load_samples(settings.gold, name, lambda stream: load_contract(settings.contracts, stream))


class Silver:
    """The readings that silver has kept.

    Parameters
    ----------
    spark, settings
        The session of a lake, and its settings.
    """

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._digest = load_contract(settings.contracts, "sensors").digest
        self.end = 0
        self.watermark = 0
        self.readings: list[Reading] = []

    @property
    def horizon(self) -> int:
        """The time before which no readings are kept any more."""
        return self.watermark - HORIZON

    def keep(self, *micro_batches: Iterable[Reading]) -> None:
        """Append several micro-batches in one commit, without late readings and duplicates, as silver does."""
        start, self.end = self.end, self.end + len(micro_batches)
        new = []
        for number, readings in enumerate(micro_batches, start):
            kept = [each for each in dict.fromkeys(readings) if each.at >= self.horizon and each not in self.readings]
            self.readings += kept
            self.watermark = max(self.watermark, *(each.at for each in kept)) if kept else self.watermark
            new += [
                {"device_id": each.device, "sensor_freq": each.value, "event_time": time(each.at)}
                | {"_micro_batch_id": number}
                for each in kept
            ]
        contents = str(self.watermark) if self.readings else ""
        marker = Marker("", self.end - 1, self._digest, str(start), str(self.end), contents=contents)
        table = open_table(self._spark, SILVER.kept, silver_query("sensors"))
        target = table.target(marker)
        assert target
        writer = DataFileWriter(target, open_storage(target.folder, S3Settings()))
        if new:
            schema = pa.schema([field for field in target.schema if field.name in new[0]])
            writer.write(pa.RecordBatch.from_pylist(new, schema=schema))
        assert append_once(table, marker, writer.close())


def fill(spark: SparkSession, settings: Settings, samples: Samples, most: int | None = None) -> int:
    """Let a product take all pending silver; return the number of micro-batches that it took."""
    layer = samples_layer(settings, samples)
    layer.prepare(open_catalog(settings))
    return take_all(spark, settings, layer, most)


def samples_layer(settings: Settings, samples: Samples) -> SamplesLayer:
    """Return the layer of a product of samples."""
    return SamplesLayer(settings, samples, samples_tables(samples.name, samples.anomalies))


def found_samples(settings: Settings, samples: Samples) -> list[Row]:
    """Return the rows of the table of samples, read by PyIceberg."""
    names = ("window_start", "window_end", "device_id", "event_time", "sensor_freq", "roles")
    return sorted(tuple(row[name] for name in names) for row in rows(settings, f"gold.{samples.name}"))


def found_anomalies(settings: Settings, samples: Samples) -> list[Row]:
    """Return the rows of the table of anomalies, read by PyIceberg."""
    names = ("detected_at", "detector", "device_id", "event_time", "sensor_freq", "minimum", "maximum")
    found = (tuple(row[name] for name in names) for row in rows(settings, f"gold.{samples.anomalies}"))
    return sorted(found, key=str)


def check(settings: Settings, silver: Silver, samples: Samples) -> tuple[int, int]:
    """Check that the tables equal the model; return their numbers of rows."""
    of_windows = windows(silver.readings, samples, silver.horizon)
    of_detectors = anomalies(silver.readings, samples, silver.horizon)
    assert found_samples(settings, samples) == of_windows
    assert found_anomalies(settings, samples) == of_detectors
    return len(of_windows), len(of_detectors)
