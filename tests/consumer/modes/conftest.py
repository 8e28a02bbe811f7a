"""Running a mode over a topic."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from tests.lakes import changed
from tests.servers import KafkaServer

from consumer.modes.micro_batches import MicroBatches
from lakeproof.kafka.modes import ModeName, mode_of
from lakeproof.settings import Settings

Made: TypeAlias = Callable[..., MicroBatches]
Run: TypeAlias = Callable[..., MicroBatches]


@pytest.fixture
def made(lake_settings: Settings, kafka: KafkaServer, tmp_path: Path) -> Iterator[Made]:
    """Make a mode, with a folder as its sink; fields are those of its settings file."""
    made: list[MicroBatches] = []

    def make(name: str, **fields: object) -> MicroBatches:
        own = {"parquet": tmp_path / "out", **fields}
        changes = {f"LAKE_{name.upper()}_{field.upper()}": value for field, value in own.items()}
        settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, **changes)
        for other in made:
            other.close()
        made.append(MicroBatches(settings, mode_of(ModeName(name), settings), to_the_end=True))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def run(made: Made, spark: SparkSession) -> Run:
    """Run a mode over everything that its topic has."""

    def take_all(name: str, **fields: object) -> MicroBatches:
        process = made(name, **fields)
        process.prepare()
        while process.take(spark):
            pass
        return process

    return take_all


def parquet(folder: Path) -> list[dict[str, Any]]:
    """The rows of a folder of Parquet files, as DuckDB reads them."""
    if not list(folder.glob("*.parquet")):
        return []
    return duckdb.sql(f"select * from '{folder}/*.parquet'").to_arrow_table().to_pylist()


def read_topic(kafka: KafkaServer, topic: str) -> list[Any]:
    """The messages of a topic with one partition."""
    options = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "tests", "enable.partition.eof": True}
    consumer = Consumer(options | {"auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while True:
        for message in consumer.consume(1_000, 1.0):
            if message.error():
                consumer.close()
                return found
            found.append(message)
