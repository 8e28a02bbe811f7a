"""Tables of samples and anomalies that Spark filled: verify accepts them, and finds each fault."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.consumer.lake import SessionOf
from tests.consumer.layers.samples.lakes import BY_WINDOW, TEXT, Silver, check, fill, sensors_lake, write_samples
from tests.consumer.layers.samples.model import EPOCH, time
from tests.consumer.layers.samples.test_sample import at, some

from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_tables
from reader.connect import connect
from reader.verify.check import Result, Scope
from reader.verify.checks import samples as samples_module
from reader.verify.gold import windows

pytestmark = pytest.mark.spark


class Bronze(Silver):
    """Silver that keeps all rows of bronze."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        super().__init__(spark, settings)
        catalog = open_catalog(settings)
        ensure_tables(catalog, load_contract(settings.contracts, "sensors"))
        self._table = catalog.load_table(stream_tables("sensors").bronze)

    def keep(self, *micro_batches: object) -> None:
        before, number = len(self.readings), self.end
        super().keep(*micro_batches)  # type: ignore[arg-type]
        schema = pa.schema([field.with_nullable(True) for field in self._table.schema().as_arrow()])
        ingested = {"_ingested_at": EPOCH.replace(year=2100), "_micro_batch_id": number}  # later than all events
        rows = [{"event_time": time(each.at)} | ingested for each in self.readings[before:]]
        self._table.append(pa.Table.from_pylist(rows, schema))


def verified(lake: Settings) -> list[Result]:
    with connect(lake) as session:
        return list(samples_module.check(Scope(lake, session, "sensors")))


def what(lake: Settings) -> list[tuple[str, str, int]]:
    (found,) = verified(lake)
    return [(each.place.removeprefix("gold.sensor_"), each.what, each.rows) for each in found.findings]


@pytest.mark.all
@pytest.mark.parametrize(
    "text", [TEXT, pytest.param(BY_WINDOW, marks=pytest.mark.long)], ids=["by device", "by window"]
)
def test_what_spark_fills_is_what_verify_expects(
    lake_settings: Settings, tmp_path: Path, session_of: SessionOf, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = sensors_lake(lake_settings, tmp_path)
    spark = session_of(lake)
    silver, samples, chance, now = Bronze(spark, lake), write_samples(lake, text), random.Random(7), 0.0
    for _ in range(2):
        micro_batches = []
        for _ in range(6):
            now += chance.choice((20, 45, 70))
            micro_batches.append(some(chance, now))
        silver.keep(*micro_batches, [at(now)])
        fill(spark, lake, samples)
    of_windows, of_detectors = check(lake, silver, samples)
    assert min(of_windows, of_detectors) > 20
    (found,) = verified(lake)
    assert (found.clean, found.waiting, found.facts["windows"] > 10) == (True, 0, True), found
    monkeypatch.setattr(windows, "_SLICE_ROWS", 20)  # many slices give the same result
    assert verified(lake) == [found]
    silver.keep([at(now + 30, -1), at(now + 300)])
    (behind,) = verified(lake)
    assert (behind.clean, behind.waiting > 0) == (True, True)
    fill(spark, lake, samples)
    assert what(lake) == []
    table = open_catalog(lake).load_table("gold.sensor_anomalies")
    one = table.scan().to_arrow().slice(0, 1)
    later = pa.array([EPOCH.replace(year=2101)], one.schema.field("detected_at").type)
    table.append(one.set_column(one.schema.get_field_index("detected_at"), one.schema.field("detected_at"), later))
    assert what(lake) == [("anomalies", "not expected", 1)]
    spark.sql("DELETE FROM lake.gold.sensor_anomalies WHERE detected_at > '2100-01-01'")
    assert what(lake) == []
    spark.sql("UPDATE lake.gold.sensor_samples SET roles = array('last') WHERE roles = array('first')")
    spark.sql("INSERT INTO lake.gold.sensor_samples SELECT * FROM lake.gold.sensor_samples WHERE roles[0] = 'anomaly'")
    spark.sql("DELETE FROM lake.gold.sensor_anomalies WHERE detector = 'out_of_range'")
    spark.sql("UPDATE lake.gold.sensor_anomalies SET maximum = maximum + 1 WHERE detector = 'rate_of_change'")
    spark.sql("UPDATE lake.gold.sensor_anomalies SET detector = 'odd' WHERE detector = 'silent_device'")
    found_now = {(table, kind) for table, kind, _ in what(lake)}
    assert found_now == {
        ("samples", "wrong roles"),
        ("samples", "several rows of one window"),
        ("anomalies", "missing"),
        ("anomalies", "not expected"),
        ("anomalies", "wrong maximum"),
    }


def test_tables_that_cannot_be_compared(lake_settings: Settings, tmp_path: Path, session_of: SessionOf) -> None:
    lake = sensors_lake(lake_settings, tmp_path)
    spark = session_of(lake)
    silver, samples = Bronze(spark, lake), write_samples(lake, TEXT)
    assert verified(lake) == []
    silver.keep([at(0, -1), at(200)])
    fill(spark, lake, samples)
    assert [found.clean for found in verified(lake)] == [True]

    def problem() -> str:
        ((text,),) = [found.problems for found in verified(lake)]
        return text

    write_samples(lake, TEXT.replace("readings: 10", "readings: 9"))
    assert "was filled for another product" in problem()
    write_samples(lake, TEXT)
    spark.sql("ALTER TABLE lake.gold.sensor_samples DROP COLUMN roles")
    assert "gold.sensor_samples has no column roles" in problem()
    open_catalog(lake).drop_table("gold.sensor_anomalies")
    assert "gold.sensor_anomalies does not exist" in problem()
