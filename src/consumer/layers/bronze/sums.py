"""Hashes of the rows of a micro-batch that a table already has.

A repeated micro-batch is judged again at another time, so its rows differ from those that were appended.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from consumer.iceberg.append import OpenTable
from consumer.iceberg.newest import check_shows
from consumer.iceberg.scan import Scan, of_micro_batches, plan, read, spread
from consumer.layers.base import Append
from consumer.layers.bronze.ledger import MicroBatch, Sums
from consumer.row_hashes import row_hashes, sums_by
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import Field
from lakeproof.settings import Settings
from lakeproof.tables.evolution import renamed_columns
from lakeproof.tables.names import SOURCE


def sums_in_tables(
    spark: SparkSession,
    settings: Settings,
    batch: MicroBatch,
    made: Sums,
    bronze: Append,
    dead_letters: Append,
    part_of: Callable[[str], str],
) -> Sums:
    """Return the row hashes of a micro-batch in bronze and dead letters, after both commits.

    These are the hashes of the data files, `made`, unless a table already had the micro-batch. `part_of` returns the
    ledger's name for the part of a source.
    """

    def of(commit: Append, sums: Counter[str], fields: Iterable[Field]) -> Counter[str]:
        if commit.was_made:
            return sums
        return _in_table(spark, settings, commit.table, batch.id, tuple(fields), part_of)

    return Sums(of(bronze, made.bronze, batch.contract), of(dead_letters, made.dead_letters, ()))


def _in_table(
    spark: SparkSession,
    settings: Settings,
    filled: OpenTable,
    number: int,
    fields: tuple[Field, ...],
    part_of: Callable[[str], str],
) -> Counter[str]:
    with catalog_errors():
        table = open_catalog(settings).load_table(filled.name)
        check_shows(table, filled.query, filled.name, number + 1)
        renamed = renamed_columns(table.properties)
        # A contract newer than the micro-batch may have renamed columns.
        known = {renamed.get(field.name, field.name): field.name for field in fields}
        columns = {known.get(column.name, column.name): column.name for column in table.schema().fields}
        scan = plan(table, filled.name, columns, of_micro_batches(number, number + 1))
    found = Counter[str]()
    for sums in spread(spark, scan, partial(_of_part, fields=fields)):
        for source, value in sums.items():
            found[part_of(source)] += value
    return found


def _of_part(part: Scan, fields: tuple[Field, ...]) -> Counter[str]:
    found = Counter[str]()
    for rows in read(part):
        batch: pa.RecordBatch = rows
        found.update(sums_by(batch.column(SOURCE), row_hashes(batch, fields)))
    return found
