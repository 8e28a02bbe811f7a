"""Run a mode over a topic."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pytest
from pyspark.sql import SparkSession
from tests.lakes import changed
from tests.servers import KafkaServer

from consumer.layers.base import take
from consumer.modes.checkpoint import Counts
from consumer.modes.layer import ModeLayer
from lakeproof.kafka.modes import ModeName, mode_of
from lakeproof.settings import Settings
from lakeproof.state.lease import Lease, lease


class Process:
    """A mode and its lease, without a query."""

    def __init__(self, settings: Settings, name: ModeName, *, to_the_end: bool = True) -> None:
        self._layer = ModeLayer(settings, mode_of(name, settings), to_the_end=to_the_end)
        self._database = settings.state.database
        self._exit = ExitStack()
        self._held: Lease | None = None

    def prepare(self) -> None:
        """Load the known state."""
        self._layer.resume()

    def take(self, spark: SparkSession) -> bool:
        """Take a micro-batch if there is one; return whether there was."""
        if self._held is None:
            self._held = self._exit.enter_context(lease(self._database, self._layer.lease_name))
        return take(self._layer, spark, self._held)

    @property
    def totals(self) -> Counts:
        """The outcomes of all messages so far."""
        return self._layer.totals

    def close(self) -> None:
        """Release the lease, so that another process can run the mode."""
        self._layer.close()
        self._exit.close()
        self._held = None


Made: TypeAlias = Callable[..., Process]
Run: TypeAlias = Callable[..., Process]


@pytest.fixture
def made(lake_settings: Settings, kafka: KafkaServer, tmp_path: Path) -> Iterator[Made]:
    """Yield a function that makes a mode, with a folder as its sink; `fields` are those of its settings file."""
    made: list[Process] = []

    def make(name: str, **fields: object) -> Process:
        own = {"parquet": tmp_path / "out", **fields}
        changes = {f"LAKE_{name.upper()}_{field.upper()}": value for field, value in own.items()}
        settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, **changes)
        for other in made:
            other.close()
        made.append(Process(settings, ModeName(name)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def run(made: Made, spark: SparkSession) -> Run:
    """Return a function that runs a mode over its whole topic."""

    def take_all(name: str, **fields: object) -> Process:
        process = made(name, **fields)
        process.prepare()
        while process.take(spark):
            pass
        return process

    return take_all


def parquet(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a folder of Parquet files, read by DuckDB."""
    if not list(folder.glob("*.parquet")):
        return []
    return duckdb.sql(f"select * from '{folder}/*.parquet'").to_arrow_table().to_pylist()
