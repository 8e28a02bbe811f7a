"""Write rows with their verdicts to the data files of the silver tables, in one pass, and count them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from consumer.iceberg.data_files import DataFile, DataFileWriter, Target
from consumer.iceberg.scan import Scan, read, spread_parts
from consumer.layers.silver.content import content_hashes
from consumer.layers.silver.verdicts import Lost, Micros, Verdict
from consumer.row_hashes import row_hashes
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

Decision = tuple[str, int, str]
"""A source, its micro-batch in bronze, and a verdict."""

ROW, _VERDICT, _HASH = "_row", "_verdict", "_hash"
_LOST_COLUMNS: list[tuple[str, pa.DataType]] = [
    (ROW, pa.int64()),
    (_VERDICT, pa.string()),
    (WINNER_SOURCE, pa.string()),
    (WINNER_POSITION, pa.int64()),
]
_REORDERED = "Rows of bronze came in another order than before."


@dataclass
class DecidedRows:
    """Rows that tasks have written, before they are committed."""

    files: dict[Verdict, list[DataFile]] = field(default_factory=dict)  # data files of the table of each verdict
    outcomes: Counter[Decision] = field(default_factory=Counter)  # number of rows of each source and verdict
    sums: Counter[Decision] = field(default_factory=Counter)  # sums of the hashes of these rows, except duplicates


@dataclass(frozen=True)
class Decided:
    """Parameters of a task, in addition to its rows."""

    contract: Contract
    horizons: Mapping[int, Micros | None]  # the horizon of each micro-batch
    # where the rows of each verdict are written; without a target, they are only counted
    targets: Mapping[Verdict, Target | None]
    s3: S3Settings
    of_topic: bool  # whether the rows come from a topic: then they are counted by partition


@dataclass(frozen=True)
class DecidedPart:
    """Rows of bronze that a task writes, with their hashes and verdicts, in order."""

    rows: Scan  # the rows
    # their places and hashes: columns of :data:`consumer.layers.silver.verdicts.COMPARED`; None if unknown
    compared: pa.Table | None
    # rows that are not kept: their numbers in the part, verdicts and winners, and hashes if `compared` is None
    lost: pa.Table


def parts_decided(bronze: Sequence[Scan], compared: Sequence[pa.Table], lost: Mapping[int, Lost]) -> list[DecidedPart]:
    """Give each part of bronze the verdicts on its rows; `lost` numbers rows across all parts."""
    of_all, parts, first = lost_table(lost), [], 0
    for rows, places in zip(bronze, compared, strict=True):
        after = first + places.num_rows
        mine = _between(of_all, first, after)
        parts.append(DecidedPart(rows, places.select([SOURCE, POSITION, CONTENT_HASH]), mine))
        first = after
    return parts


def write_decided(spark: SparkSession, bronze: Scan, parts: Sequence[DecidedPart], decided: Decided) -> DecidedRows:
    """Write rows of bronze, from the parts of a scan, to the tables of their verdicts."""
    return whole_of(spread_parts(spark, bronze, parts, lambda part: write_part(part, decided)), decided)


def whole_of(parts: Iterable[DecidedRows], decided: Decided) -> DecidedRows:
    """Combine the results of all parts."""
    whole = DecidedRows(files={verdict: [] for verdict in decided.targets})
    for written in parts:
        for verdict, files in written.files.items():
            whole.files[verdict] += files
        whole.outcomes.update(written.outcomes)
        whole.sums.update(written.sums)
    return whole


def write_part(part: DecidedPart, decided: Decided) -> DecidedRows:
    """Write the rows of a part."""
    written = DecidedRows()
    writers = {
        verdict: DataFileWriter(target, open_storage(target.folder, decided.s3))
        for verdict, target in decided.targets.items()
        if target
    }
    first = 0
    for batch in read(part.rows):
        after = first + batch.num_rows
        lost = _between(part.lost, first, after)
        if part.compared is not None:
            whole = _with_hashes(batch, part.compared.slice(first, batch.num_rows))
        else:
            whole = _hashed_again(batch, lost, decided.contract)
        for verdict, rows, of_lost in _by_verdict(whole, lost):
            rows = _rows_for(verdict, rows, of_lost, decided)
            outcomes, sums = _counted(rows, verdict, decided)
            written.outcomes.update(outcomes)
            written.sums.update(sums)
            if verdict in writers:
                writers[verdict].write(rows)
        first = after
    written.files = {verdict: writer.close() for verdict, writer in writers.items()}
    return written


def lost_table(lost: Mapping[int, Lost]) -> pa.Table:
    """Return the numbers of rows that are not kept, ascending, with their verdicts and winners."""
    rows = [(number, str(verdict), *(winner or (None, None))) for number, (verdict, winner) in sorted(lost.items())]
    columns = list(zip(*rows, strict=True)) or [()] * len(_LOST_COLUMNS)
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(columns, _LOST_COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(_LOST_COLUMNS))


def _between(lost: pa.Table, first: int, after: int) -> pa.Table:
    """Return the lost rows from number `first` to before `after`, numbered from 0."""
    numbers: Any = lost[ROW].to_numpy()
    begin, end = np.searchsorted(numbers, [first, after])
    # A slice would be pickled with the whole buffers, for each task; `take` copies the rows.
    mine = lost.take(np.arange(begin, end))
    return mine.set_column(0, ROW, pa.array(numbers[begin:end] - first, pa.int64()))


def _with_hashes(batch: pa.RecordBatch, compared: pa.Table) -> pa.RecordBatch:
    """Return rows with their hashes, which were computed when the rows were first read."""
    for name in (SOURCE, POSITION):
        column = compared[name].combine_chunks()
        if not batch.column(name).cast(column.type).equals(column):
            raise RuntimeError(_REORDERED)
    return batch.append_column(CONTENT_HASH, compared[CONTENT_HASH].combine_chunks())


def _hashed_again(batch: pa.RecordBatch, lost: pa.Table, contract: Contract) -> pa.RecordBatch:
    """Return rows with their hashes, which for lost rows must equal the hashes of the first read."""
    hashes = content_hashes(batch, contract)
    if not hashes.take(lost[ROW].combine_chunks()).equals(lost[CONTENT_HASH].combine_chunks()):
        raise RuntimeError(_REORDERED)
    return batch.append_column(CONTENT_HASH, hashes)


def _by_verdict(batch: pa.RecordBatch, lost: pa.Table) -> Iterator[tuple[Verdict, pa.RecordBatch, pa.Table]]:
    """Yield the rows of each verdict, in order, with the matching rows of `lost`."""
    is_kept = np.ones(batch.num_rows, np.bool_)
    is_kept[lost[ROW].to_numpy()] = False
    yield Verdict.KEPT, batch.filter(pa.array(is_kept)), lost.slice(0, 0)
    for verdict in (Verdict.DUPLICATE, Verdict.CONFLICT, Verdict.LATE):
        mine = lost.filter(pc.equal(lost[_VERDICT], str(verdict)))
        if mine.num_rows:
            yield verdict, batch.take(mine[ROW].combine_chunks()), mine


def _rows_for(verdict: Verdict, rows: pa.RecordBatch, of_lost: pa.Table, decided: Decided) -> pa.RecordBatch:
    """Return the rows of one verdict with the columns of its table."""
    if verdict in (Verdict.CONFLICT, Verdict.LATE):
        rows = rows.drop_columns([CONTENT_HASH])
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
            return rows


def _counted(rows: pa.RecordBatch, verdict: Verdict, decided: Decided) -> tuple[Counter[Decision], Counter[Decision]]:
    """Count the rows of each source that got a verdict, and sum up their hashes."""
    keys = [SOURCE, MICRO_BATCH_ID]
    # A repeated micro-batch has the same rows: they are hashed, even if their table has them.
    hashes = pa.nulls(rows.num_rows, pa.uint64())
    if verdict is not Verdict.DUPLICATE:
        hashes = pa.array(row_hashes(rows, decided.contract))
    table = pa.Table.from_batches([rows.select(keys)]).append_column(_HASH, hashes)
    if decided.of_topic:
        table = table.set_column(0, SOURCE, pc.utf8_slice_codeunits(table[SOURCE], 0, -1 - OFFSET_DIGITS))
    found = table.group_by(keys).aggregate([([], "count_all"), (_HASH, "sum")])
    outcomes, sums = Counter[Decision](), Counter[Decision]()
    for row in found.to_pylist():
        decision = row[SOURCE], row[MICRO_BATCH_ID], str(verdict)
        outcomes[decision], sums[decision] = row["count_all"], row[f"{_HASH}_sum"] or 0
    return outcomes, sums
