"""A new kind of layer takes one module and one line: here, the number of rows in each micro-batch of bronze."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, TimestamptzType
from pyspark.sql import SparkSession
from tests.consumer.crashes import crash_before
from tests.consumer.lake import Drain, SessionOf, rows

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.data_files import DataFileWriter
from consumer.iceberg.marker import Marker
from consumer.layers import registry
from consumer.layers.base import Append, Commits, Layer
from consumer.layers.rebuild import rebuild
from consumer.queries.application import run_queries
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from consumer.scope import Scope, scope_of_run
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.errors import LakeproofError
from lakeproof.settings import S3Settings, Settings
from lakeproof.storage import open_storage
from lakeproof.tables.names import stream_tables

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW = Trigger(available_now=True)
GOOD = b'{"user_id": "a", "event_id": "%s", "event_timestamp": "2026-11-20T12:00:00Z", "event_type": "page_view"}'
COLUMNS = Schema(
    NestedField(1, "at", TimestamptzType()), NestedField(2, "number", LongType()), NestedField(3, "rows", LongType())
)


@dataclass(frozen=True)
class Work:
    """Micro-batches of bronze from `start` to before `end`."""

    counts: OpenTable
    sums: OpenTable
    start: int
    end: int
    before: int
    marker: Marker


class ToyLayer(Layer[Work]):
    """Counts the rows of each micro-batch in one table, then sums them in another table, which records the progress."""

    event = "toy micro-batch"
    remedy = "Run it again."

    def __init__(self, settings: Settings, stream: str, suffix: str = "") -> None:
        self._settings = settings
        self.stream = stream
        self.name = self.lease_name = f"toy-{stream}"
        self.follows = bronze_query(stream)
        self.tables = (f"toy.counts_{stream}{suffix}", f"toy.sums_{stream}{suffix}")
        self.source = stream_tables(stream).bronze

    @classmethod
    def in_scope(cls, scope: Scope) -> "Iterable[ToyLayer]":
        return [cls(scope.settings, stream) for stream in scope.contracts]

    def beside(self, suffix: str) -> "ToyLayer":
        return ToyLayer(self._settings, self.stream, suffix)

    def prepare(self, catalog: Catalog) -> None:
        by_day = PartitionSpec(PartitionField(1, 1000, DayTransform(), "at_day"))
        catalog.create_namespace_if_not_exists("toy")
        for table in self.tables:
            catalog.create_table_if_not_exists(table, COLUMNS, partition_spec=by_day)

    def next(self, spark: SparkSession) -> Work | None:
        bronze = open_table(spark, self.source, self.follows or "").newest()
        counts, sums = (open_table(spark, table, self.name) for table in self.tables)
        done, begun = sums.newest(), counts.newest()
        start = done.next_number if done else 0
        end = bronze.next_number if bronze else 0
        if begun and begun.next_number > start:  # left by a crash
            end = begun.next_number
        if end == start:
            return None
        before = int(done.marker.contents) if done else 0
        return Work(counts, sums, start, end, before, Marker("toy", end - 1, "", str(start), str(end)))

    def compute(self, spark: SparkSession, work: Work) -> Commits:
        found = Counter(row["_micro_batch_id"] for row in rows(self._settings, self.source))
        numbers = {number: found[number] for number in range(work.start, work.end)}
        total = work.before + sum(numbers.values())
        marker = Marker("toy", work.end - 1, "", str(work.start), str(work.end), contents=str(total))
        for table, written in ((work.counts, numbers), (work.sums, {work.end - 1: total})):
            if target := table.target(marker):
                writer = DataFileWriter(target, open_storage(target.folder, S3Settings()))
                made = [{"at": NOON, "number": number, "rows": count} for number, count in written.items()]
                writer.write(pa.RecordBatch.from_pylist(made, schema=target.schema))
                yield Append(table, marker, writer.close())
        return {"stream": self.stream, "rows": total}


@pytest.fixture
def lake(lake_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(registry, "LAYERS", [*registry.LAYERS, ToyLayer])  # the line
    (lake_settings.home / "landing" / "events").mkdir(parents=True)
    return lake_settings


def land(settings: Settings, name: str, count: int) -> None:
    records = b",".join(GOOD % f"{name}-{number}".encode() for number in range(count))
    (settings.home / "landing" / "events" / f"{name}.json").write_bytes(b"[" + records + b"]")


def found(settings: Settings, table: str) -> list[tuple[int, int]]:
    return sorted((row["number"], row["rows"]) for row in rows(settings, f"toy.{table}_events"))


def test_a_layer_needs_a_module_and_a_line(
    lake: Settings, drain_directly: Drain, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = session_of(lake)

    def run() -> list[LayerQuery]:
        queries = [LayerQuery(lake, layer, NOW) for layer in registry.layers_of(scope_of_run(lake, ["events"], None))]
        run_queries(lake, queries, lambda: spark, available_now=True)
        return queries

    def toy() -> Any:
        return next(each for each in registry.layers_of(scope_of_run(lake, ["events"], None)) if "toy" in each.name)

    land(lake, "a", 2)
    drain_directly(lake)
    assert [query.micro_batches for query in run()] == [1] * 3  # silver, a product of gold, and the toy
    assert (found(lake, "counts"), found(lake, "sums")) == ([(0, 2)], [(0, 2)])

    land(lake, "b", 3)
    drain_directly(lake)
    crash_before(monkeypatch)(1)
    queries = [LayerQuery(lake, toy(), NOW)]
    with pytest.raises(LakeproofError, match="as asked"):
        run_queries(lake, queries, lambda: spark, available_now=True)
    assert (found(lake, "counts"), found(lake, "sums")) == ([(0, 2), (1, 3)], [(0, 2)])
    land(lake, "c", 4)
    drain_directly(lake)
    assert [query.micro_batches for query in run()][-1] == 2  # the rest of the begun work, then the newer rows
    expected = ([(0, 2), (1, 3), (2, 4)], [(0, 2), (1, 5), (2, 9)])
    assert (found(lake, "counts"), found(lake, "sums")) == expected

    said = rebuild(lake, toy(), lambda: spark)
    assert said.startswith("Rebuilt toy.sums_events and toy.counts_events from bronze.events.")
    assert (found(lake, "counts"), found(lake, "sums")) == (expected[0], [(2, 9)])
    assert len(open_catalog(lake).list_tables("toy")) == 2
    assert run()[-1].micro_batches == 0
