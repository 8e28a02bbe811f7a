"""Compare the hashes in the ledgers of a stream with the rows of its tables, by the reader's SQL."""

from collections.abc import Iterable
from typing import Any

import duckdb
from pyiceberg.catalog import Catalog

from consumer.iceberg.nulls import keep_nulls
from lakeproof.catalog import open_catalog, table_or_none
from lakeproof.contracts import Field
from lakeproof.history.applied import applied_contracts
from lakeproof.kafka.offsets import OFFSET_DIGITS
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.settings import Settings
from lakeproof.tables.names import silver_tables, stream_tables
from reader.verify.tables.row_hash import row_hash_sql, sum_sql

Sums = dict[tuple[str, int], int]
"""Hashes by source (for a topic, by partition) and micro-batch."""


def check_hashes(settings: Settings, stream: str = "events") -> int:
    """Check that each hash in the ledgers matches the rows of the tables; return the number of compared hashes."""
    catalog = open_catalog(settings)
    names, silver = stream_tables(stream), silver_tables(stream)
    fields = applied_contracts(catalog, stream)[-1].contract().fields
    compared = 0
    for ledger, column, table, known in (
        (names.ledger, "bronze_hash", names.bronze, fields),
        (names.ledger, "dead_letters_hash", names.dead_letters, ()),
        (silver.ledger, "kept_hash", silver.kept, fields),
        (silver.ledger, "conflicts_hash", silver.conflicts, fields),
        (silver.ledger, "late_hash", silver.late, fields),
    ):
        if table_or_none(catalog, table) is None:
            continue
        of_topic = recorded_topic(catalog.load_table(names.ledger).properties) is not None
        recorded = _sums(catalog, ledger, "source", "micro_batch_id", f'r."{column}"', of_topic=of_topic)
        hashed = row_hash_sql(catalog.load_table(table).schema(), known, "r")
        found = _sums(catalog, table, "_source", "_micro_batch_id", hashed, of_topic=of_topic)
        assert {key: value for key, value in recorded.items() if value} == found, table
        compared += len(found)
    return compared


def hashes_of(settings: Settings, table: str, fields: Iterable[Field] = ()) -> Sums:
    """Return hashes of the rows of a table."""
    catalog = open_catalog(settings)
    sql = row_hash_sql(catalog.load_table(table).schema(), fields, "r")
    return _sums(catalog, table, "_source", "_micro_batch_id", sql, of_topic=False)


def _sums(catalog: Catalog, table: str, source: str, number: str, hashed: str, *, of_topic: bool) -> Sums:
    keep_nulls()
    # In the ledger of silver, sources are partitions already.
    part = f"regexp_replace({source}, '/[0-9]{{{OFFSET_DIGITS}}}$', '')" if of_topic else source
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("rows", catalog.load_table(table).scan().to_arrow())
        found: list[Any] = connection.execute(
            f"SELECT {part}, {number}, {sum_sql(hashed)} FROM rows AS r GROUP BY ALL"
        ).fetchall()
    return {(name, batch): value for name, batch, value in found}
