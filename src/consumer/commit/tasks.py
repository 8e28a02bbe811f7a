"""Work of tasks on rows of Spark: only what came of it travels through the JVM."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import _parse_datatype_string
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from lakeproof.errors import LakeproofError


class Part(Protocol):
    """What a task wrote. Can be pickled."""

    failure: LakeproofError | None


PartT = TypeVar("PartT", bound=Part)


def write_in_tasks(rows: DataFrame, write: Callable[[Iterator[pa.RecordBatch]], PartT]) -> Iterator[PartT]:
    """Let each task write its rows; return what each wrote, and raise what one of them failed with."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"written": [pickle.dumps(write(batches))]})

    for row in _map_in_arrow(rows, work, "written binary").collect():
        part: PartT = pickle.loads(row.written)  # noqa: S301 - our own
        if part.failure:
            raise part.failure
        yield part


def _map_in_arrow(rows: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Any], schema: str) -> DataFrame:
    """What ``DataFrame.mapInArrow`` does, which asks for pandas, though neither it nor its workers use that."""
    function = UserDefinedFunction(work, _parse_datatype_string(schema), evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = function(*[rows[name] for name in rows.columns])
    mapped = rows._jdf.mapInArrow(column._jc, False, None)
    return DataFrame(mapped, rows.sparkSession)
