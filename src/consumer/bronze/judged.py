"""Judge files in Spark: the processor around :mod:`consumer.bronze.judge` is this thin."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from consumer.bronze.columns import judged_schema
from consumer.bronze.judge import Judge
from consumer.sources.envelope import Envelope
from consumer.sources.files import balanced_groups, envelopes
from consumer.sources.landing_log import LandedFile
from lakeproof.contracts import Contract
from lakeproof.settings import S3Settings
from lakeproof.storage import open_storage
from lakeproof.tables import LANDED_AT, SOURCE

_TIMESTAMP = pa.timestamp("us", tz="UTC")

# Several groups of files for each core, so that one that takes longer does not leave the others idle; but none that is
# smaller than this, since each makes files of its own in the tables.
_GROUPS_PER_CORE = 4
_BYTES_PER_GROUP = 8 * 1024**2


def judge_files(spark: SparkSession, files: list[LandedFile], contract: Contract, s3: S3Settings) -> DataFrame:
    """Read and judge files of one storage, spread over the cluster by their size.

    Returns
    -------
    DataFrame
        A row per unit: the contract's columns, ``_position``, ``reasons``, ``raw``, ``_source``, ``_landed_at``.
        Rows without ``reasons`` meet the contract; the others have nulls in its columns, and their bytes in ``raw``.
    """
    wanted = 1 + sum(file.size for file in files) // _BYTES_PER_GROUP
    groups = balanced_groups(files, min(wanted, len(files), _GROUPS_PER_CORE * spark.sparkContext.defaultParallelism))

    if not groups:
        return spark.createDataFrame([], from_arrow_schema(_columns(contract)))

    def judge_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_numpy():
                files_of_group = groups[int(index)]
                storage = open_storage(files_of_group[0].uri, s3)
                yield from judge_envelopes(envelopes(files_of_group, storage), contract)

    # A partition for each group. Only indexes travel through the JVM: the tasks read the files themselves.
    indexes = spark.range(0, len(groups), 1, len(groups))
    return indexes.mapInArrow(judge_groups, from_arrow_schema(_columns(contract)))  # type: ignore[arg-type]


def judge_envelopes(batches: Iterable[Envelope], contract: Contract) -> Iterator[pa.RecordBatch]:
    """Judge each batch, and say of every unit where it came from. Columns as in :func:`judge_files`."""
    judge = Judge(contract)
    schema = _columns(contract)
    for envelope in batches:
        if envelope.failure is None:
            units = judge.judge(envelope.value)
        else:
            units = judge.refuse(*envelope.failure, envelope.value)
        for unit in units:
            source = pa.repeat(pa.scalar(envelope.source, pa.string()), unit.num_rows)
            landed_at = pa.repeat(pa.scalar(envelope.landed_at, _TIMESTAMP), unit.num_rows)
            yield pa.RecordBatch.from_arrays([*unit.columns, source, landed_at], schema=schema)


def _columns(contract: Contract) -> pa.Schema:
    return pa.schema([*judged_schema(contract), pa.field(SOURCE, pa.string()), pa.field(LANDED_AT, _TIMESTAMP)])
