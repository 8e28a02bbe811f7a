"""Dead letters with their state after replays, as rows of Spark.

Dead letters of a stream without attempts need no join: tasks read them from the data files, in a fifth of the time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.iceberg.scan import Scan, plan
from consumer.layers.bronze.letter_condition import COLUMNS
from consumer.layers.bronze.replayed import ETAG, TRANSFORMED, TRIED
from lakeproof.catalog import CATALOG
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.tables.names import (
    ATTEMPT,
    HEADERS,
    INGESTED_AT,
    KEY,
    LANDED_AT,
    LETTER,
    MICRO_BATCH_ID,
    OUTCOME,
    POSITION,
    RAW,
    REASONS,
    REPLAY,
    SOURCE,
    ReplayOutcome,
    StreamTables,
)

_STATE = "state"
_LAST_REPLAY = "last_replay"
_BYTES = "__bytes"
_LETTER_KEY = "__letter"
_KEYS = [SOURCE, POSITION, ATTEMPT]
_LARGE_BYTES = 64 << 20
_NAMED = f"The columns are {', '.join(COLUMNS)}; of a topic also _key and _headers."
_DATA_EXCEPTION = "22"  # class of SQLSTATE


@dataclass(frozen=True)
class Choice:
    """The choice of dead letters to replay."""

    where: str | None = None  # a condition in Spark SQL
    limit: int | None = None
    parked: bool = False  # whether to include those that have failed as often as allowed


def untouched(table: Table, attempts: Table | None, *, of_topic: bool) -> Scan | None:
    """Return a scan of all dead letters of a stream without attempts, if Spark is not needed to read or complete them.

    Spark is needed for files that it would split among tasks, for deletes, and for bytes that are not in the table.
    """
    columns = [*_KEYS, LANDED_AT, REASONS, RAW, *([KEY, HEADERS] if of_topic else [])]
    has = {field.name: field.field_id for field in table.schema().fields}
    if (attempts and attempts.current_snapshot()) or not has.keys() >= set(columns):
        return None
    try:
        scan = plan(table, ".".join(table.name()), {name: name for name in columns})
    except LakeproofError:  # equality deletes
        return None
    raw = has[RAW]
    for each in scan.files:
        nulls = (each.file.null_value_counts or {}).get(raw)
        if each.delete_files or nulls != 0 or each.file.file_size_in_bytes > _LARGE_BYTES:
            return None
    return scan


def as_chosen(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of :func:`untouched` with the columns of :func:`chosen`."""
    attempt = pc.fill_null(rows.column(ATTEMPT), 1)
    rows = rows.set_column(rows.schema.get_field_index(ATTEMPT), ATTEMPT, attempt)
    for name, kind in ((TRIED, pa.int32()), (TRANSFORMED, pa.binary()), (ETAG, pa.string())):
        rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
    return rows


def chosen(
    spark: SparkSession, names: StreamTables, choice: Choice, since: tuple[int, int] | None, *, tried: bool
) -> DataFrame:
    """Return the dead letters to replay.

    `since` is the first replay of a command, and the number of its micro-batch: dead letters that this replay or a
    later one has tried, or has made of the rest of a batch, are not tried again by the same command. `tried` says
    whether the table of attempts exists. The columns are those of the dead letters, and some that
    :mod:`consumer.layers.bronze.replayed` names.
    """
    letters = _with_state(spark, names, tried=tried)
    states = [F.lit("open"), *[F.lit(str(ReplayOutcome.PARKED))] * choice.parked]
    letters = letters.where(F.col(_STATE).isin(*states))
    if since:
        replay, micro_batch = since
        letters = letters.where(F.col(_LAST_REPLAY).isNull() | (F.col(_LAST_REPLAY) < replay))
        letters = letters.where(F.col(MICRO_BATCH_ID) < micro_batch)
    if choice.where:
        letters = _where(letters, choice.where)
    return letters.drop(_STATE, _LAST_REPLAY)


def first(letters: DataFrame, count: int) -> DataFrame:
    """Return the first dead letters, in the order of their ingestion."""
    keys = letters.select(INGESTED_AT, *_KEYS).orderBy(INGESTED_AT, *_KEYS).limit(count).select(*_KEYS)
    return letters.join(keys, _KEYS, "left_semi")


def transformed(letters: DataFrame, expression: str | None, name: str = "") -> DataFrame:
    """Add the bytes of dead letters after a transform by an SQL expression."""
    if expression is None:
        return letters.withColumn(TRANSFORMED, F.lit(None).cast("binary"))
    hidden = letters.withColumn(_BYTES, F.col(RAW)).withColumn(RAW, F.col(RAW).cast("string"))
    try:
        made = hidden.withColumn(TRANSFORMED, F.expr(expression).cast("string").cast("binary"))
    except AnalysisException as error:
        raise _unusable(f"--transform {name}", error, "It is an expression over raw.") from error
    return made.withColumn(RAW, F.col(_BYTES)).drop(_BYTES)


def with_etags(spark: SparkSession, names: StreamTables, letters: DataFrame) -> DataFrame:
    """Add the storage's tags of files for dead letters without bytes."""
    if letters.where(F.col(RAW).isNull()).limit(1).isEmpty():
        return letters.withColumn(ETAG, F.lit(None).cast("string"))
    ledger = spark.table(f"{CATALOG}.{names.ledger}").where(F.col(REPLAY).isNull())
    tags = ledger.groupBy(F.col("source").alias(SOURCE)).agg(F.max("etag").alias(ETAG))
    return letters.join(tags, SOURCE, "left")


def begun(spark: SparkSession, names: StreamTables, number: int) -> DataFrame:
    """Return the dead letters that a replay has recorded attempts of, with outcomes and the bytes judged."""
    attempts = spark.table(f"{CATALOG}.{names.attempts}").where(F.col(REPLAY) == number)
    recorded = attempts.select(
        SOURCE,
        POSITION,
        F.col(LETTER).alias(ATTEMPT),
        (F.col(ATTEMPT) - 1).alias(TRIED),
        OUTCOME,
        F.col(RAW).alias(TRANSFORMED),
    )
    return with_etags(spark, names, _letters(spark, names).join(recorded, _KEYS))


def attempts_of(spark: SparkSession, names: StreamTables, number: int) -> int:
    """Return the number of attempts that a replay has recorded."""
    return spark.table(f"{CATALOG}.{names.attempts}").where(F.col(REPLAY) == number).count()


def _letters(spark: SparkSession, names: StreamTables) -> DataFrame:
    # A null number was written by another tool, or by a version without numbers: the row is as it landed.
    landed = F.coalesce(F.col(ATTEMPT), F.lit(1))
    return spark.table(f"{CATALOG}.{names.dead_letters}").withColumn(ATTEMPT, landed)


def _with_state(spark: SparkSession, names: StreamTables, *, tried: bool) -> DataFrame:
    letters = _letters(spark, names)
    if not tried:
        nothing = {TRIED: "int", OUTCOME: "string", _LAST_REPLAY: "long"}
        for name, kind in nothing.items():
            letters = letters.withColumn(name, F.lit(None).cast(kind))
    else:
        attempts = spark.table(f"{CATALOG}.{names.attempts}")
        newest = attempts.groupBy(SOURCE, POSITION, F.col(LETTER).alias(_LETTER_KEY)).agg(
            F.max(ATTEMPT).alias(TRIED),
            F.max_by(OUTCOME, ATTEMPT).alias(OUTCOME),
            F.max(REPLAY).alias(_LAST_REPLAY),
        )
        newest = newest.withColumnRenamed(_LETTER_KEY, ATTEMPT)
        letters = letters.join(newest, _KEYS, "left")
    is_open = F.col(OUTCOME).isNull() | (F.col(OUTCOME) == str(ReplayOutcome.FAILED))
    return letters.withColumn(_STATE, F.when(is_open, F.lit("open")).otherwise(F.col(OUTCOME))).drop(OUTCOME)


def _where(letters: DataFrame, condition: str) -> DataFrame:
    visible = (
        letters.withColumn(_BYTES, F.col(RAW))
        .withColumn(RAW, F.col(RAW).cast("string"))
        .withColumn("codes", F.transform(REASONS, _code))
        .withColumn("attempts", F.coalesce(F.col(TRIED), F.lit(1)) - 1)
    )
    try:
        found = visible.where(F.expr(condition))
    except AnalysisException as error:
        raise _unusable("--where", error, _NAMED) from error
    return found.withColumn(RAW, F.col(_BYTES)).drop(_BYTES, "codes", "attempts")


def _code(reason: Column) -> Column:
    return reason["code"]


@contextmanager
def evaluated(option: str) -> Iterator[None]:
    """Report a condition or expression that fails on the bytes of a dead letter, such as a cast."""
    try:
        yield
    except PySparkException as error:
        if not option or not (error.getSqlState() or "").startswith(_DATA_EXCEPTION):
            raise
        raise UsageError(
            f"{option} cannot be evaluated for one of the dead letters: {_first_sentence(error)}.",
            "Correct it. `try_cast` gives NULL where a value cannot be converted.",
        ) from error


def _unusable(option: str, error: AnalysisException, hint: str) -> UsageError:
    return UsageError(f"{option} cannot be evaluated: {_first_sentence(error)}.", f"Correct it. {hint}")


def _first_sentence(error: PySparkException) -> str:
    """Return Spark's message without the column names that it suggests: some are not for a condition."""
    said = str(error).splitlines()[0]
    return said.partition(" Did you mean ")[0].partition(" SQLSTATE: ")[0].rstrip(".")
