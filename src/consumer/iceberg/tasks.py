"""Rows of Spark that tasks write to data files: only file names and counts pass through the JVM."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import _parse_datatype_string
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from consumer.iceberg.data_files import DataFile, DataFileWriter, Target
from consumer.spreading import attempted, succeeded, tidied
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage

ResultT = TypeVar("ResultT")


@dataclass
class Written:
    """The data files of written rows, before they are committed."""

    files: list[DataFile] = field(default_factory=list)
    rows: int = 0


def write_batches(batches: Iterable[pa.RecordBatch], target: Target, s3: S3Settings) -> Written:
    """Write rows that have a table's columns to data files."""
    writer, written = DataFileWriter(target, open_storage(target.folder, s3)), Written()
    for batch in batches:
        writer.write(batch)
        written.rows += batch.num_rows
    written.files = writer.close()
    return written


def write_rows(rows: DataFrame, target: Target, s3: S3Settings) -> Written:
    """Write rows of Spark to data files in tasks; see :func:`write_batches`."""
    return gathered(write_in_tasks(rows, lambda batches: write_batches(batches, target, s3)))


def gathered(parts: Iterable[Written]) -> Written:
    """Combine the results of several writers."""
    whole = Written()
    for part in parts:
        whole.files += part.files
        whole.rows += part.rows
    return whole


def write_in_tasks(rows: DataFrame, write: Callable[[Iterator[pa.RecordBatch]], ResultT]) -> list[ResultT]:
    """Let each task write its rows; return the results, or raise the error of a task."""
    attempt = attempted(write)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"written": [pickle.dumps(attempt(batches))]})

    with tidied(rows.sparkSession.sparkContext):
        found = map_in_arrow(rows, work, "written binary").collect()
    return succeeded(pickle.loads(row.written) for row in found)  # noqa: S301 - our own


def map_in_arrow(rows: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Any], schema: str) -> DataFrame:
    """Do the same as ``DataFrame.mapInArrow``, which requires pandas, though neither it nor its workers use pandas."""
    function = UserDefinedFunction(work, _parse_datatype_string(schema), evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = function(*[rows[name] for name in rows.columns])
    mapped = rows._jdf.mapInArrow(column._jc, False, None)
    return DataFrame(mapped, rows.sparkSession)
