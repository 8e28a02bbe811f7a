"""Write rows with their verdicts to the data files of the silver tables, in one pass, and count them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from consumer.commit.data_files import DataFile, DataFileWriter, Target
from consumer.commit.tasks import write_in_tasks
from consumer.silver.verdicts import Lost, Micros, Place, Verdict
from lakeproof.errors import LakeproofError
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

_VERDICT = "_verdict"


@dataclass
class Written:
    """What tasks wrote of their rows; no table knows of it yet.

    Parameters
    ----------
    files
        Data files of the table of each verdict.
    outcomes
        How many rows of each source got which verdict.
    failure
        Why a task could not do its work.
    """

    files: dict[Verdict, list[DataFile]] = field(default_factory=dict)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    failure: LakeproofError | None = None


def write_decided(
    rows: DataFrame,
    lost: Mapping[Place, Lost],
    horizons: Mapping[int, Micros | None],
    targets: Mapping[Verdict, Target | None],
    s3: S3Settings,
    *,
    of_topic: bool,
) -> Written:
    """Write rows to the tables of their verdicts; those of a table without a target are only counted.

    Parameters
    ----------
    rows
        Rows of bronze with their hash.
    lost
        Those that are not kept.
    horizons
        The horizon of each of their micro-batches.
    targets
        Where the rows of each verdict go.
    s3
        How to reach S3.
    of_topic
        Whether the rows come from a topic: then they are counted by partition.

    Raises
    ------
    UnavailableError
        A data file cannot be written; nothing was committed.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Written:
        return _write(batches, lost, horizons, targets, s3, of_topic=of_topic)

    whole = Written(files={verdict: [] for verdict in targets})
    for part in write_in_tasks(rows, write):
        for verdict, files in part.files.items():
            whole.files[verdict] += files
        whole.outcomes.update(part.outcomes)
    return whole


def _write(
    batches: Iterator[pa.RecordBatch],
    lost: Mapping[Place, Lost],
    horizons: Mapping[int, Micros | None],
    targets: Mapping[Verdict, Target | None],
    s3: S3Settings,
    *,
    of_topic: bool,
) -> Written:
    written = Written()
    try:
        writers = {
            verdict: DataFileWriter(target, open_storage(target.folder, s3))
            for verdict, target in targets.items()
            if target
        }
        for batch in batches:
            decided = _decided(batch, lost)
            written.outcomes.update(_counted(decided, of_topic=of_topic))
            for verdict, writer in writers.items():
                mine = decided.filter(pc.equal(decided.column(_VERDICT), pa.scalar(str(verdict))))
                if mine.num_rows:
                    writer.write(_rows_for(verdict, mine, lost, horizons))
        written.files = {verdict: writer.close() for verdict, writer in writers.items()}
    except LakeproofError as error:  # an exception would reach the driver as the text of a stack trace
        written.failure = error
    return written


def _decided(rows: pa.RecordBatch, lost: Mapping[Place, Lost]) -> pa.RecordBatch:
    verdicts = [lost[place].verdict if place in lost else Verdict.KEPT for place in _places(rows)]
    return rows.append_column(_VERDICT, pa.array(map(str, verdicts), pa.string()))


def _rows_for(
    verdict: Verdict, rows: pa.RecordBatch, lost: Mapping[Place, Lost], horizons: Mapping[int, Micros | None]
) -> pa.RecordBatch:
    """Rows of one verdict, with the columns that its table has."""
    plain = rows.drop_columns([_VERDICT, CONTENT_HASH])
    match verdict:
        case Verdict.CONFLICT:
            winners = [lost[place].winner or ("", 0) for place in _places(rows)]
            sources, positions = zip(*winners, strict=True)
            return plain.append_column(WINNER_SOURCE, pa.array(sources, pa.string())).append_column(
                WINNER_POSITION, pa.array(positions, pa.int64())
            )
        case Verdict.LATE:
            numbers: list[Any] = rows.column(MICRO_BATCH_ID).to_pylist()
            times = [horizons[number] for number in numbers]
            return plain.append_column(HORIZON, pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")))
        case _:
            return rows.drop_columns([_VERDICT])


def _places(rows: pa.RecordBatch) -> Iterator[Place]:
    sources: list[Any] = rows.column(SOURCE).to_pylist()
    positions: list[Any] = rows.column(POSITION).to_pylist()
    return zip(sources, positions, strict=True)


def _counted(rows: pa.RecordBatch, *, of_topic: bool) -> Counter[Outcome]:
    keys = [SOURCE, MICRO_BATCH_ID, _VERDICT]
    table = pa.Table.from_batches([rows.select(keys)])
    if of_topic:
        compute: Any = pc  # its stubs lack a function
        table = table.set_column(0, SOURCE, compute.utf8_slice_codeunits(table[SOURCE], 0, -1 - OFFSET_DIGITS))
    counts = table.group_by(keys).aggregate([([], "count_all")])
    return Counter({(row[SOURCE], row[MICRO_BATCH_ID], row[_VERDICT]): row["count_all"] for row in counts.to_pylist()})
