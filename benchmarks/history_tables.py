"""Create bronze and silver with a long history quickly, with rows written to the tables as the consumer does."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from consumer.iceberg.append import append_once, open_table
from consumer.iceberg.data_files import DataFileWriter
from consumer.iceberg.marker import Marker
from consumer.layers.base import take
from consumer.layers.silver.decide import SilverLayer
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import load_contract
from lakeproof.history.apply import adopt
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import lease, silver_lease
from lakeproof.storage import open_storage
from lakeproof.tables.names import (
    CONTENT_HASH,
    CONTRACT_VERSION,
    INGESTED_AT,
    LANDED_AT,
    MICRO_BATCH_ID,
    POSITION,
    SOURCE,
    silver_query,
    silver_tables,
    stream_tables,
)
from lakeproof.tables.schemas import ensure_silver_tables, ensure_tables

STREAM = "events"
NOW = datetime(2026, 11, 20, 23, tzinfo=UTC)
_ROWS_OF_A_FILE = 500_000
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class History:
    """The tables of a stream, with methods that add micro-batches.

    Parameters
    ----------
    spark, settings
        Session and settings of a lake.
    spread
        Period before :data:`NOW` that has the event times of silver's rows.
    users
        Number of users.
    """

    def __init__(self, spark: SparkSession, settings: Settings, spread: timedelta, users: int = 100_000) -> None:
        self._spark = spark
        self._settings = settings
        self._spread = spread
        self._users = users
        self._log = ContractLog(settings.state.database)
        catalog = open_catalog(settings)
        self._contract = adopt(catalog, settings, STREAM, self._log)
        ensure_tables(catalog, self._contract)
        ensure_silver_tables(catalog, self._contract, silver_tables(STREAM))
        self._bronze_id = str(catalog.load_table(stream_tables(STREAM).ledger).metadata.table_uuid)
        self.micro_batches = 0
        self.rows = 0

    def keep(self, rows: int) -> None:
        """Add rows to silver, each with its own key, as if silver had kept them from bronze."""
        while rows > 0:
            count = min(rows, _ROWS_OF_A_FILE)
            self._keep(self._columns(np.arange(self.rows, self.rows + count), self._spread))
            self.rows += count
            rows -= count

    def keep_late(self, rows: int, days: int) -> None:
        """Add rows to silver in one micro-batch, with users and times that silver already has, from the last days."""
        chance = np.random.default_rng(self.micro_batches)
        columns = self._columns(chance.choice(self.rows, min(self.rows, rows * 1_000), replace=False), self._spread)
        of_days = pc.greater_equal(columns["event_timestamp"], pa.scalar(NOW - timedelta(days=days)))
        late = {name: column.filter(of_days).slice(0, rows) for name, column in columns.items()}
        late["event_id"] = pa.array([f"late-{self.micro_batches}-{number}" for number in range(rows)])
        self._keep(late)

    def _keep(self, columns: dict[str, Any]) -> None:
        names, count = silver_tables(STREAM), len(columns[SOURCE])
        columns[CONTENT_HASH] = _random_bytes(count)
        # Bronze's marker has to keep up. Its rows are not read again, so they are omitted.
        self._append(stream_tables(STREAM).bronze, bronze_query(STREAM), self._marker("bench"), None)
        self._append_ledger(count)
        marker = self._marker(self._bronze_id, contents=str((NOW - _EPOCH) // _MICROSECOND))
        for name in (names.conflicts, names.late, names.ledger):
            self._append(name, silver_query(STREAM), marker, None)
        self._append(names.kept, silver_query(STREAM), marker, columns)
        self.micro_batches += 1

    def land(self, rows: int, duplicates: float) -> None:
        """Add a micro-batch to bronze; some of its keys are in silver."""
        numbers = np.arange(self.rows, self.rows + rows)
        again = np.random.default_rng(self.micro_batches).random(rows) < duplicates
        numbers[again] = np.random.default_rng(1).integers(0, max(self.rows, 1), again.sum())
        columns = self._columns(numbers, timedelta(hours=1))
        self._append(stream_tables(STREAM).bronze, bronze_query(STREAM), self._marker("bench"), columns)
        self._append_ledger(rows)
        self.micro_batches += 1
        self.rows += rows

    @contextmanager
    def deciding(self) -> Iterator[Callable[[SparkSession], bool]]:
        """Yield a function that runs silver's query once on the new rows of bronze."""
        with lease(self._settings.state.database, silver_lease(STREAM)) as held:
            contract = load_contract(self._settings.contracts, STREAM)
            with closing(SilverLayer(self._settings, contract, silver_tables(STREAM))) as layer:
                yield lambda spark: take(layer, spark, held)

    def _columns(self, numbers: Any, spread: timedelta) -> dict[str, Any]:
        """Return columns of events by number: equal numbers have equal keys and equal event times."""
        count = len(numbers)
        width = spread // _MICROSECOND
        # Multiplied by a prime, so that neighbors are far apart: each file covers the whole period.
        times = (NOW - _EPOCH) // _MICROSECOND - (numbers * 2_654_435_761) % width
        text = numbers.astype("U12")
        return {
            "user_id": pa.array(np.char.add("user-", (numbers % self._users).astype("U12"))),
            "event_id": pa.array(np.char.add("0123456789abcdef0123", np.char.zfill(text, 12))),
            "event_timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "event_type": pa.array(["page_view"]).take(pa.array(np.zeros(count, np.int64))),
            SOURCE: pa.array([f"2026/{self.micro_batches:06}.json"]).take(pa.array(np.zeros(count, np.int64))),
            POSITION: pa.array(np.arange(count)),
        }

    def _append(self, name: str, query: str, marker: Marker, columns: dict[str, Any] | None) -> None:
        table = open_table(self._spark, name, query)
        target = table.target(marker)
        assert target
        writer = DataFileWriter(target, open_storage(target.folder, self._settings.s3))
        if columns:
            count = len(columns[SOURCE] if SOURCE in columns else columns["source"])
            same = {MICRO_BATCH_ID: self.micro_batches, CONTRACT_VERSION: "1", INGESTED_AT: NOW, LANDED_AT: NOW}
            for column in target.schema:
                if column.name in same and column.name not in columns:
                    columns[column.name] = pa.repeat(pa.scalar(same[column.name], column.type), count)
            for batch in pa.table(columns).to_batches():
                writer.write(batch)
        append_once(table, marker, writer.close())

    def _append_ledger(self, rows: int) -> None:
        names = stream_tables(STREAM)
        columns = {
            "source": pa.array([f"2026/{self.micro_batches:06}.json"]),
            "micro_batch_id": pa.array([self.micro_batches]),
            "bronze": pa.array([rows]),
        }
        self._append(names.ledger, bronze_query(STREAM), self._marker("bench"), columns)

    def _marker(self, checkpoint: str, contents: str = "") -> Marker:
        number = self.micro_batches
        return Marker(checkpoint, number, self._contract.digest, str(number), str(number + 1), contents=contents)


def _random_bytes(count: int) -> Any:
    content = np.random.default_rng(0).bytes(16 * count)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(content)])
    return fixed.cast(pa.binary())
