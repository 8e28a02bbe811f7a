"""Judge the parts of a micro-batch in Spark, and write the tables' data files in the same pass.

Each task reads its parts, judges their units and writes the rows; only names of data files and counts pass through the
JVM. So a unit is judged once, and nothing is cached or computed again for the second table.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Any, Generic

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from consumer.iceberg.data_files import DataFile, DataFileWriter, Target
from consumer.layers.bronze.examples import note_examples
from consumer.layers.bronze.ledger import Drift, MicroBatch, Outcome, Sums
from consumer.layers.bronze.rows import Origins, bronze_rows, dead_letter_rows, drift_sets
from consumer.layers.bronze.trips import BadUnit
from consumer.row_hashes import row_hashes
from consumer.sources.envelope import Envelope, Messages
from consumer.sources.source import PartT, Reader
from consumer.spreading import in_tasks
from lakeproof.contracts import Field
from lakeproof.install.judges import JudgeName
from lakeproof.judge.batch import Judge
from lakeproof.judge.judged import Judged
from lakeproof.reasons import NOT_READ, reason_sets
from lakeproof.settings import Limits, S3Settings
from lakeproof.storage import open_storage

# Rows up to this size are hashed together: a file may have few rows, and a call takes as long as hashing a few hundred.
_HASHED_BYTES = 256 << 10
# Batches are judged together up to these numbers.
_TOGETHER, _TOGETHER_BYTES = 4_096, 4 << 20


@dataclass(frozen=True)
class Task(Generic[PartT]):
    """Parameters of a task, in addition to its parts."""

    batch: MicroBatch
    bronze: Target | None  # where to write data files; None for a table that already has the micro-batch
    dead_letters: Target | None
    reader: Reader[PartT]  # reads the parts
    s3: S3Settings
    limits: Limits = field(default_factory=Limits)  # size limits of batches and records
    judge: JudgeName = "auto"
    only_listed: bool = False  # whether a part whose tag is not the listed one counts as changed, whatever its size


@dataclass
class JudgedParts(Generic[PartT]):
    """Results of judging parts, before they are committed."""

    bronze: list[DataFile] = field(default_factory=list)
    dead_letters: list[DataFile] = field(default_factory=list)
    # number of units of each source, by set of reasons
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    # number of values rescued or discarded in the bronze rows of each source, by set of reasons
    drift: Counter[Drift] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)  # sources that changed after they were judged, and were left out
    # parts whose tag is not the listed one, and which were read as they are now
    touched: list[PartT] = field(default_factory=list)
    examples: dict[str, BadUnit] = field(default_factory=dict)  # a bad unit for each of the first sets of reasons
    hashes: dict[str, str] = field(default_factory=dict)  # hash of each source's bytes as stored
    sums: Sums = field(default_factory=Sums)  # hashes of the rows in the data files


def contents_of(written: JudgedParts[PartT]) -> str:
    """Return a digest of all content read for a micro-batch."""
    told = "\n".join(f"{name} {found}" for name, found in sorted(written.hashes.items()))
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()


def warm_up(spark: SparkSession) -> None:
    """Start the cluster's Python workers and import the modules for judging: over a second, once per worker."""
    cores = spark.sparkContext.defaultParallelism
    with suppress(PySparkException, Py4JError):  # an error here will occur again in the query
        spark.sparkContext.parallelize(range(cores), cores).foreach(_nothing)


def warm_up_beside(spark: SparkSession) -> SparkSession:
    """Run :func:`warm_up` in the background, beside other work; return the session."""
    Thread(target=warm_up, args=(spark,), name="warm-up", daemon=True).start()
    return spark


def write_judged(spark: SparkSession, parts: Sequence[PartT], task: Task[PartT]) -> JudgedParts[PartT]:
    """Judge parts, spread over the cluster, and write the data files.

    If bronze already has the micro-batch, a part that changed since then is left out: its old content was judged, and
    cannot be judged again. Otherwise, the part is a dead letter.
    """
    whole: JudgedParts[PartT] = JudgedParts()
    groups = task.reader.groups(parts, spark.sparkContext.defaultParallelism)
    for part in in_tasks(spark.sparkContext, groups, partial(write_group, task=task)):
        whole.bronze += part.bronze
        whole.dead_letters += part.dead_letters
        whole.outcomes.update(part.outcomes)
        whole.drift.update(part.drift)
        whole.changed += part.changed
        whole.touched += part.touched
        whole.examples = part.examples | whole.examples
        whole.hashes |= part.hashes
        whole.sums.add(part.sums)
    return whole


def write_group(parts: list[PartT], task: Task[PartT]) -> JudgedParts[PartT]:
    """Judge parts, one after the other, and write the data files."""
    work = _Work(task)
    written: JudgedParts[PartT] = work.written
    touched = None if task.only_listed else written.touched.append
    waiting = _Waiting(work)
    for envelope in task.reader.envelopes(parts, task.limits, touched):
        if isinstance(envelope, Messages):
            work.take_together(envelope.values, Origins.of_messages(envelope))
            continue
        if envelope.content_hash:
            written.hashes[envelope.source] = envelope.content_hash
        if envelope.failure is None:
            waiting.add(envelope)
        elif envelope.failure[0] in NOT_READ and task.bronze is None and not envelope.message:
            written.changed.append(envelope.source)
        else:
            work.take(work.judge.refuse(*envelope.failure, envelope.value), envelope)
    waiting.take()
    return work.close()


class _Work(Generic[PartT]):
    """Judges the units of a task, and writes them to data files."""

    def __init__(self, task: Task[PartT]) -> None:
        self.judge = Judge(task.batch.contract, task.limits, task.judge)
        self.written: JudgedParts[PartT] = JudgedParts()
        self._batch = task.batch
        sums = self.written.sums
        self._bronze = _Rows(writer_for(task.bronze, task.s3), sums.bronze, task.batch.contract)
        self._dead_letters = _Rows(writer_for(task.dead_letters, task.s3), sums.dead_letters)

    def take(self, judged: Iterable[Judged], envelope: Envelope) -> None:
        """Write the judged units of an envelope."""
        origins = Origins.of_envelopes([envelope])
        for units in judged:
            self._take(units, origins, None, None)

    def take_envelopes(self, envelopes: Sequence[Envelope]) -> None:
        """Judge and write envelopes together."""
        if len(envelopes) == 1:
            self.take(self.judge.judge(envelopes[0].value or b""), envelopes[0])
        else:
            self.take_together([envelope.value or b"" for envelope in envelopes], Origins.of_envelopes(envelopes))

    def take_together(self, batches: Sequence[bytes], origins: Origins) -> None:
        """Judge and write batches together."""
        for found in self.judge.judge_together(batches):
            self._take(found.judged, origins, found.good_of, found.bad_of)

    def close(self) -> JudgedParts[PartT]:
        """Finish the data files."""
        self.written.bronze = self._bronze.close()
        self.written.dead_letters = self._dead_letters.close()
        return self.written

    def _take(self, units: Judged, origins: Origins, good_of: Any, bad_of: Any) -> None:
        """Count units, and write their rows. `good_of` and `bad_of` are their batches, None for a single batch."""
        good, bad = units.good, units.bad
        outcomes, drift = self.written.outcomes, self.written.drift
        if len(good):
            counts = origins.counts_of(good_of, len(good))
            outcomes.update({(part, None): units for part, units in counts.items()})
            if sets := drift_sets(good):
                parts = origins.parts_of(good_of, len(good))
                drift.update((part, codes) for part, each in zip(parts, sets, strict=True) for codes in each)
            if self._bronze.writer:
                rows = bronze_rows(good, origins.columns_of(good_of, len(good)), self._batch)
                self._bronze.take(rows, origins, good_of)
        if len(bad):
            parts = origins.parts_of(bad_of, len(bad))
            columns, reasons = origins.columns_of(bad_of, len(bad)), reason_sets(bad.reasons)
            outcomes.update(zip(parts, reasons, strict=True))
            note_examples(self.written.examples, bad, reasons, columns)
            if self._dead_letters.writer:
                self._dead_letters.take(dead_letter_rows(bad, columns, self._batch), origins, bad_of)


class _Waiting:
    """Collects envelopes that are judged together."""

    def __init__(self, work: _Work[Any]) -> None:
        self._work = work
        self._envelopes: list[Envelope] = []
        self._bytes = 0

    def add(self, envelope: Envelope) -> None:
        self._envelopes.append(envelope)
        self._bytes += len(envelope.value or b"")
        if self._bytes >= _TOGETHER_BYTES or len(self._envelopes) == _TOGETHER:
            self.take()

    def take(self) -> None:
        if self._envelopes:
            self._work.take_envelopes(self._envelopes)
        self._envelopes, self._bytes = [], 0


class _Rows:
    """Writes rows to the data files of a table, and sums up their hashes."""

    def __init__(self, writer: DataFileWriter | None, sums: Counter[str], fields: Iterable[Field] = ()) -> None:
        self.writer = writer
        self._sums = sums
        self._fields = fields
        self._waiting: list[tuple[pa.RecordBatch, Origins, Any]] = []
        self._bytes = 0

    def take(self, rows: pa.RecordBatch, origins: Origins, of: Any) -> None:
        """Add rows; `of` is the batch of each row in `origins`, None for a single batch."""
        self._waiting.append((rows, origins, of))
        self._bytes += rows.nbytes
        if self._bytes >= _HASHED_BYTES:
            self._write()

    def close(self) -> list[DataFile]:
        """Finish the data files."""
        self._write()
        return self.writer.close() if self.writer else []

    def _write(self) -> None:
        if not self._waiting or not self.writer:
            return
        batches = pa.Table.from_batches([rows for rows, _, _ in self._waiting]).combine_chunks().to_batches()
        for rows in batches:
            self.writer.write(rows)
        hashes: Any = np.concatenate([row_hashes(rows, self._fields) for rows in batches])
        begin = 0
        for rows, origins, of in self._waiting:
            self._sums.update(origins.sums_of(of, hashes[begin : begin + rows.num_rows]))
            begin += rows.num_rows
        self._waiting, self._bytes = [], 0


def _nothing(_: int) -> None:
    """Do nothing. Spark sends a function's name, not its code: the worker imports this module to find it."""


def writer_for(target: Target | None, s3: S3Settings) -> DataFileWriter | None:
    """Return a writer of data files; None for a table that already has the micro-batch."""
    return DataFileWriter(target, open_storage(target.folder, s3)) if target else None
