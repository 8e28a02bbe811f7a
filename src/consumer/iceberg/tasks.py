"""Rows of Spark that tasks write to data files: only names of files and counts travel through the JVM."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import _parse_datatype_string
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from consumer.iceberg.data_files import DataFile, DataFileWriter, Target
from lakeproof.errors import LakeproofError
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage


@dataclass
class Written:
    """What tasks wrote of their rows, or why one of them could not; no table knows of it yet."""

    files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    failure: LakeproofError | None = None


class Part(Protocol):
    """What a task wrote. Can be pickled."""

    failure: LakeproofError | None


PartT = TypeVar("PartT", bound=Part)


def write_rows(rows: DataFrame, target: Target, s3: S3Settings) -> Written:
    """Write rows, whose columns are a table's, to data files for it.

    Raises
    ------
    UnavailableError
        A data file cannot be written; nothing was committed.
    """
    return gathered(write_in_tasks(rows, lambda batches: _write(batches, target, s3)))


def gathered(parts: Iterable[Written]) -> Written:
    """What tasks wrote, together."""
    whole = Written()
    for part in parts:
        whole.files += part.files
        whole.rows += part.rows
    return whole


def write_in_tasks(rows: DataFrame, write: Callable[[Iterator[pa.RecordBatch]], PartT]) -> Iterator[PartT]:
    """Let each task write its rows; return what each wrote, and raise what one of them failed with."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"written": [pickle.dumps(write(batches))]})

    for row in map_in_arrow(rows, work, "written binary").collect():
        part: PartT = pickle.loads(row.written)  # noqa: S301 - our own
        if part.failure:
            raise part.failure
        yield part


def map_in_arrow(rows: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Any], schema: str) -> DataFrame:
    """What ``DataFrame.mapInArrow`` does, which asks for pandas, though neither it nor its workers use that."""
    function = UserDefinedFunction(work, _parse_datatype_string(schema), evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = function(*[rows[name] for name in rows.columns])
    mapped = rows._jdf.mapInArrow(column._jc, False, None)
    return DataFrame(mapped, rows.sparkSession)


def _write(batches: Iterator[pa.RecordBatch], target: Target, s3: S3Settings) -> Written:
    written = Written()
    try:
        writer = DataFileWriter(target, open_storage(target.folder, s3))
        for batch in batches:
            writer.write(batch)
            written.rows += batch.num_rows
        written.files = writer.close()
    except LakeproofError as error:  # an exception would reach the driver as the text of a stack trace
        written.failure = error
    return written
