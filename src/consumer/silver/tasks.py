"""Write rows with their verdicts to the data files of the silver tables, in one pass, and count them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from consumer.commit.data_files import DataFile, DataFileWriter, Target
from consumer.scan import Scan, read, spread
from consumer.silver.content import content_hashes
from consumer.silver.verdicts import Lost, Micros, Place, Verdict
from lakeproof.contracts import Contract
from lakeproof.kafka.offsets import OFFSET_DIGITS
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage
from lakeproof.tables.names import (
    CONTENT_HASH,
    HORIZON,
    MICRO_BATCH_ID,
    POSITION,
    SOURCE,
    WINNER_POSITION,
    WINNER_SOURCE,
)

Outcome = tuple[str, int, str]
"""A source, its micro-batch in bronze, and a verdict."""

_VERDICT, _ROW = "_verdict", "_row"
_LOST_COLUMNS: list[tuple[str, pa.DataType]] = [
    (SOURCE, pa.large_string()),
    (POSITION, pa.int64()),
    (_VERDICT, pa.string()),
    (WINNER_SOURCE, pa.string()),
    (WINNER_POSITION, pa.int64()),
]
_compute: Any = pc  # its stubs lack functions


@dataclass
class Written:
    """What tasks wrote of their rows; no table knows of it yet.

    Parameters
    ----------
    files
        Data files of the table of each verdict.
    outcomes
        How many rows of each source got which verdict.
    """

    files: dict[Verdict, list[DataFile]] = field(default_factory=dict)
    outcomes: Counter[Outcome] = field(default_factory=Counter)


@dataclass(frozen=True)
class Decided:
    """What a task has to know beside its rows.

    Parameters
    ----------
    contract
        The contract.
    lost
        The rows that are not kept.
    horizons
        The horizon of each micro-batch.
    targets
        Where the rows of each verdict go; those of a table without a target are only counted.
    s3
        How to reach S3, to write data files.
    of_topic
        Whether the rows come from a topic: then they are counted by partition.
    """

    contract: Contract
    lost: Mapping[Place, Lost]
    horizons: Mapping[int, Micros | None]
    targets: Mapping[Verdict, Target | None]
    s3: S3Settings
    of_topic: bool


def write_decided(spark: SparkSession, bronze: Scan, decided: Decided) -> Written:
    """Write rows of bronze to the tables of their verdicts.

    Raises
    ------
    UnavailableError
        A data file cannot be read or written; nothing was committed.
    """
    whole = Written(files={verdict: [] for verdict in decided.targets})
    for part in spread(spark, bronze, lambda part: _write(part, decided)):
        for verdict, files in part.files.items():
            whole.files[verdict] += files
        whole.outcomes.update(part.outcomes)
    return whole


def _write(part: Scan, decided: Decided) -> Written:
    written = Written()
    writers = {
        verdict: DataFileWriter(target, open_storage(target.folder, decided.s3))
        for verdict, target in decided.targets.items()
        if target
    }
    lost = _lost_table(decided.lost)
    for batch in read(part):
        for verdict, rows, of_lost in _by_verdict(batch, lost):
            written.outcomes.update(_counted(rows, verdict, of_topic=decided.of_topic))
            if verdict in writers:
                writers[verdict].write(_rows_for(verdict, rows, of_lost, decided))
    written.files = {verdict: writer.close() for verdict, writer in writers.items()}
    return written


def _lost_table(lost: Mapping[Place, Lost]) -> pa.Table:
    rows = [(*place, str(verdict), *(winner or (None, None))) for place, (verdict, winner) in lost.items()]
    columns = list(zip(*rows, strict=True)) or [()] * len(_LOST_COLUMNS)
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(columns, _LOST_COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(_LOST_COLUMNS))


def _by_verdict(batch: pa.RecordBatch, lost: pa.Table) -> Iterator[tuple[Verdict, pa.RecordBatch, pa.Table]]:
    """Rows of each verdict, in their order, beside what is known of each of them if they are lost."""
    places = pa.table(
        {
            SOURCE: batch.column(SOURCE).cast(pa.large_string()),
            POSITION: batch.column(POSITION),
            _ROW: pa.array(np.arange(batch.num_rows)),
        }
    )
    found = places.join(lost, [SOURCE, POSITION], join_type="inner").sort_by(_ROW)
    is_kept = np.ones(batch.num_rows, np.bool_)
    is_kept[found[_ROW].to_numpy()] = False
    yield Verdict.KEPT, batch.filter(pa.array(is_kept)), found.slice(0, 0)
    for verdict in (Verdict.DUPLICATE, Verdict.CONFLICT, Verdict.LATE):
        mine = found.filter(_compute.equal(found[_VERDICT], str(verdict)))
        if mine.num_rows:
            yield verdict, batch.take(mine[_ROW].combine_chunks()), mine


def _rows_for(verdict: Verdict, rows: pa.RecordBatch, of_lost: pa.Table, decided: Decided) -> pa.RecordBatch:
    """Rows of one verdict, with the columns that its table has."""
    match verdict:
        case Verdict.CONFLICT:
            for name in (WINNER_SOURCE, WINNER_POSITION):
                rows = rows.append_column(name, of_lost[name].combine_chunks())
            return rows
        case Verdict.LATE:
            numbers: list[Any] = rows.column(MICRO_BATCH_ID).to_pylist()
            times = [decided.horizons[number] for number in numbers]
            return rows.append_column(HORIZON, pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")))
        case _:
            return rows.append_column(CONTENT_HASH, content_hashes(rows, decided.contract))


def _counted(rows: pa.RecordBatch, verdict: Verdict, *, of_topic: bool) -> Counter[Outcome]:
    keys = [SOURCE, MICRO_BATCH_ID]
    table = pa.Table.from_batches([rows.select(keys)])
    if of_topic:
        table = table.set_column(0, SOURCE, _compute.utf8_slice_codeunits(table[SOURCE], 0, -1 - OFFSET_DIGITS))
    counts = table.group_by(keys).aggregate([([], "count_all")])
    return Counter({(row[SOURCE], row[MICRO_BATCH_ID], str(verdict)): row["count_all"] for row in counts.to_pylist()})
