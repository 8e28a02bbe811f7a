"""Run a stream without a streaming query: in this process, with the micro-batches that Spark would form.

Spark starts several Python processes for each streaming query, which takes seconds. Tests of crashes, restores and
maintenance run a stream many times, and are about the tables and the checkpoint. So this module handles a
checkpoint like Spark's ``MicroBatchExecution``, and calls the same source and the same micro-batches.
``test_direct.py`` compares the two.
"""

import json
import os
import tempfile
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from consumer.app.application import Query
from consumer.app.landing import BronzeQuery
from consumer.app.trigger import Trigger
from consumer.bulletin import Bulletin
from consumer.sources.files.stream import SCHEMA
from lakeproof.catalog import catalog_errors
from lakeproof.checkpoint import checkpoint_folder
from lakeproof.settings import Settings
from lakeproof.state.lease import Lease, lease
from lakeproof.storage.local import local_path

Offset = dict[str, Any]


class Checkpoint:
    """A checkpoint in a local folder, in Spark's format.

    Parameters
    ----------
    folder
        The folder; created if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        metadata = folder / "metadata"
        if not metadata.exists():
            metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))
        self.id = json.loads(metadata.read_text())["id"]

    def newest(self) -> tuple[int, bool]:
        """Return the number of the newest micro-batch, -1 for none, and whether it is committed."""
        number = max((int(path.name) for path in (self._folder / "offsets").glob("[0-9]*")), default=-1)
        return number, (self._folder / "commits" / str(number)).exists()

    def offset(self, number: int) -> Offset:
        """Return the offset at which a micro-batch ends."""
        offset: Offset = json.loads((self._folder / "offsets" / str(number)).read_text().splitlines()[2])
        return offset

    def plan(self, number: int, end: Offset) -> None:
        """Record the end of a micro-batch before it runs."""
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000, "conf": {}}
        lines = ("v1", json.dumps(metadata, separators=(",", ":")), json.dumps(end))
        (self._folder / "offsets" / str(number)).write_text("\n".join(lines))

    def commit(self, number: int) -> None:
        """Record that a micro-batch is done."""
        (self._folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def drain_directly(spark: SparkSession, settings: Settings, stream: str) -> None:
    """Take everything that has landed of a stream, as ``consumer run STREAM --available-now`` does.

    Raises
    ------
    LakeproofError
        As in the program.
    """
    query = BronzeQuery(settings, stream, Trigger(available_now=True))
    with (
        lease(settings.state.database, query.lease_name) as held,
        tempfile.TemporaryDirectory(prefix="lakeproof-") as folder,
    ):
        bulletin = Bulletin(Path(folder))
        try:
            _run(spark, settings, query, held, bulletin)
        except Exception as error:
            raise bulletin.noted(query.name) or query.explain(error) from error


def _run(spark: SparkSession, settings: Settings, query: BronzeQuery, held: Lease, bulletin: Bulletin) -> None:
    with catalog_errors():
        query.prepare()
    query.resume(spark, held)
    if query.paused:
        raise query.paused
    checkpoint = Checkpoint(local_path(checkpoint_folder(settings, query.name)))
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", checkpoint.id)
    try:
        _micro_batches(_Session(spark, query, bulletin, settings.state.database), checkpoint)
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]


class _Session:
    """Session between a query and Spark that records what the query would start."""

    def __init__(self, spark: SparkSession, query: Query, bulletin: Bulletin, database: str) -> None:
        self._spark = spark
        self._database = database
        self._reader: Any = None
        self._take: Any = None
        self.readStream = self.writeStream = self
        self.dataSource = SimpleNamespace(register=self._register)
        self.sparkContext = spark.sparkContext
        for name, value in query.spark_settings.items():
            spark.conf.set(name, value)
        query.start(self, bulletin)  # type: ignore[arg-type]
        self.reader: _SimpleStreamReaderWrapper = self._reader

    def _register(self, source: Any) -> None:
        self._reader = source(options={}).streamReader(None)
        # The environment of a consumer's process has the values that pickled settings leave out.
        with patch.dict(os.environ, {"LAKE_LANDING_LOG_URI": self._database}):
            _ = self._reader.simple_reader._opened

    def _itself(self, *_arguments: object, **_named: object) -> "_Session":
        return self

    format = load = queryName = option = trigger = start = _itself  # noqa: N815 - Spark's names

    def foreachBatch(self, take: Any) -> "_Session":  # noqa: N802 - Spark's name
        self._take = take
        return self

    def take(self, number: int, start: Offset, end: Offset) -> None:
        """Let the query take a micro-batch."""
        rows = list(self.reader.getCache(start, end))
        self._take(self._spark.createDataFrame(rows, SCHEMA), number)


def _micro_batches(session: _Session, checkpoint: Checkpoint) -> None:
    reader = session.reader
    number, committed = checkpoint.newest()
    end = checkpoint.offset(number) if number >= 0 else None
    if end is not None and not committed:
        start = checkpoint.offset(number - 1) if number else reader.initialOffset()
        reader.partitions(start, end)
        session.take(number, start, end)
        checkpoint.commit(number)
    elif end is not None:
        reader.partitions(end, end)
    while (latest := reader.latestOffset()) != end:
        start = reader.initialOffset() if end is None else end
        number += 1
        checkpoint.plan(number, latest)
        session.take(number, start, latest)
        checkpoint.commit(number)
        end = latest
