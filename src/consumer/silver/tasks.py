"""Write rows with their verdicts to the data files of the silver tables, in one pass, and count them."""

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import _parse_datatype_string
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from consumer.commit.data_files import DataFile, DataFileWriter, Target
from consumer.silver.verdicts import VERDICT, Verdict
from lakeproof.errors import LakeproofError
from lakeproof.kafka.offsets import OFFSET_DIGITS
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage
from lakeproof.tables.names import CONTENT_HASH, HORIZON, MICRO_BATCH_ID, SOURCE, WINNER_POSITION, WINNER_SOURCE

Outcome = tuple[str, int, str]
"""A source, its micro-batch in bronze, and a verdict."""

_ADDED = {
    Verdict.KEPT: (CONTENT_HASH,),
    Verdict.CONFLICT: (WINNER_SOURCE, WINNER_POSITION),
    Verdict.LATE: (HORIZON,),
}
"""Columns that the table of a verdict has beside bronze's."""


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
    columns: Sequence[str],
    targets: dict[Verdict, Target | None],
    s3: S3Settings,
    *,
    of_topic: bool,
) -> Written:
    """Write rows that have their verdict; those of a table without a target are only counted.

    Parameters
    ----------
    rows
        Rows of bronze, with what :func:`consumer.silver.verdicts.decided` adds.
    columns
        Those of bronze that the silver tables have.
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

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = _write(batches, columns, targets, s3, of_topic=of_topic)
        yield pa.RecordBatch.from_pydict({"written": [pickle.dumps(written)]})

    whole = Written(files={verdict: [] for verdict in _ADDED})
    for row in _map_in_arrow(rows, write, "written binary").collect():
        part: Written = pickle.loads(row.written)  # noqa: S301 - our own
        if part.failure:
            raise part.failure
        for verdict, files in part.files.items():
            whole.files[verdict] += files
        whole.outcomes.update(part.outcomes)
    return whole


def _map_in_arrow(rows: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Any], schema: str) -> DataFrame:
    """What ``DataFrame.mapInArrow`` does, which asks for pandas, though neither it nor its workers use that."""
    function = UserDefinedFunction(work, _parse_datatype_string(schema), evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = function(*[rows[name] for name in rows.columns])
    mapped = rows._jdf.mapInArrow(column._jc, False, None)
    return DataFrame(mapped, rows.sparkSession)


def _write(
    batches: Iterator[pa.RecordBatch],
    columns: Sequence[str],
    targets: dict[Verdict, Target | None],
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
            written.outcomes.update(_counted(batch, of_topic=of_topic))
            verdicts = batch.column(VERDICT)
            for verdict, writer in writers.items():
                mine = batch.filter(pc.equal(verdicts, pa.scalar(str(verdict))))
                writer.write(mine.select([*columns, *_ADDED[verdict]]))
        written.files = {verdict: writer.close() for verdict, writer in writers.items()}
    except LakeproofError as error:  # an exception would reach the driver as the text of a stack trace
        written.failure = error
    return written


def _counted(batch: pa.RecordBatch, *, of_topic: bool) -> Counter[Outcome]:
    keys = [SOURCE, MICRO_BATCH_ID, VERDICT]
    rows = pa.Table.from_batches([batch.select(keys)])
    if of_topic:
        compute: Any = pc  # its stubs lack a function
        rows = rows.set_column(0, SOURCE, compute.utf8_slice_codeunits(rows[SOURCE], 0, -1 - OFFSET_DIGITS))
    counts = rows.group_by(keys).aggregate([([], "count_all")])
    return Counter({(row[SOURCE], row[MICRO_BATCH_ID], row[VERDICT]): row["count_all"] for row in counts.to_pylist()})
