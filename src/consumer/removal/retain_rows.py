"""Retention of rows: dead letters that a replay has closed, and silver's conflicts and late rows, once they are old.

A property of the table, set in the same commit, accounts for removed rows: their number, and the sum of their hashes.
The ledger keeps its counts. Rows are kept while ledger and table differ.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.remove import Accounted, removal_errors, remove
from consumer.iceberg.rewrite import CollisionError
from consumer.iceberg.scan import Scan, of_micro_batches, plan, read, spread
from consumer.maintenance.maintain import LEASE, prepare
from consumer.removal.account import read_account
from consumer.row_hashes import row_hashes, signed, sum_of
from lakeproof.catalog import CATALOG, catalog_errors, open_catalog
from lakeproof.contracts import load_contract
from lakeproof.contracts.duration import duration_text
from lakeproof.contracts.model import Field, Removable
from lakeproof.settings import Settings
from lakeproof.state.lease import lease
from lakeproof.tables.expired import Expired, expired_of
from lakeproof.tables.names import (
    ATTEMPT,
    EXPIRED,
    HASH_OF,
    INGESTED_AT,
    LETTER,
    MICRO_BATCH_ID,
    OUTCOME,
    POSITION,
    REPLAY,
    SOURCE,
    ReplayOutcome,
    silver_query,
    silver_tables,
    stream_tables,
)
from lakeproof.wording import count_of

UNEVEN = "ledger and table differ: see `reader verify`"
_QUERY = "retention"
_AT_ONCE = 100_000  # maximum number of dead letters in a commit: the driver and each task hold their places
_LETTER_KEYS = {SOURCE: f"row.{SOURCE}", POSITION: f"row.{POSITION}", LETTER: f"coalesce(row.{ATTEMPT}, 1)"}

Wanted = Callable[[pa.RecordBatch], Sequence[bool]]


@dataclass
class RetainedRows:
    """The result of retention for the rows of a table, or of its dry run."""

    table: str
    older_than: str
    removed: int = 0
    kept: str = ""
    """Why rows that are old enough are kept."""


@dataclass(frozen=True)
class _Total:
    """The number of rows in a set, and the sum of their hashes."""

    rows: int = 0
    hash: int = 0

    def __add__(self, other: "_Total") -> "_Total":
        return _Total(self.rows + other.rows, signed(self.hash + other.hash))


@dataclass(frozen=True)
class _Chosen:
    """Rows that are old enough: a data frame of their keys, and a predicate for Arrow rows."""

    keys: DataFrame
    on: Mapping[str, str]
    wanted: Wanted
    before: int
    """All of these rows are from micro-batches with lower numbers."""
    others: int = 0
    """Number of rows that are left to later commits."""


def retain_rows(
    settings: Settings,
    stream: str,
    ages: Mapping[Removable, timedelta],
    session: Callable[[], SparkSession],
    *,
    dry_run: bool = False,
    is_ending: Callable[[], bool] = lambda: False,
) -> list[RetainedRows]:
    """Remove rows of a stream's tables that are older than the given ages."""
    with lease(settings.state.database, f"retention.{stream}"), lease(settings.state.database, LEASE):
        with catalog_errors():
            catalog = open_catalog(settings)
            needed = {each: _tables(stream, each) for each in ages}
            there = {each: [catalog.table_exists(name) for name in names] for each, names in needed.items()}
        done = []
        for what, age in ages.items():
            mine = RetainedRows(needed[what][0], duration_text(age))
            done.append(mine)
            if all(there[what]):
                retention = _Retention(settings, catalog, stream, what, session())
                retention.run(mine, datetime.now(UTC) - age, dry_run=dry_run, is_ending=is_ending)
        return done


def _tables(stream: str, what: Removable) -> list[str]:
    """Return the table from which rows are removed, and the tables that determine which rows."""
    names, silver = stream_tables(stream), silver_tables(stream)
    if what is Removable.DEAD_LETTERS:
        return [names.dead_letters, names.attempts]
    return [silver.late if what is Removable.LATE else silver.conflicts, silver.kept, silver.ledger]


class _Retention:
    def __init__(self, settings: Settings, catalog: Catalog, stream: str, what: Removable, spark: SparkSession) -> None:
        self._catalog = catalog
        self._stream = stream
        self._what = what
        self._spark = spark
        self._table = _tables(stream, what)[0]
        self._is_of_letters = what is Removable.DEAD_LETTERS
        self._fields: list[Field] = [] if self._is_of_letters else list(load_contract(settings.contracts, stream))
        prepare(spark)

    def run(self, done: RetainedRows, limit: datetime, *, dry_run: bool, is_ending: Callable[[], bool]) -> None:
        while not is_ending():
            table = open_table(self._spark, self._table, _QUERY)
            chosen = self._letters(limit) if self._is_of_letters else self._verdicts(table, limit)
            if chosen is None:
                return
            text = table.property(EXPIRED)
            then = expired_of({EXPIRED: text} if text else {})
            before = max(chosen.before, then.before)
            held, old = self._sums(before, chosen.wanted)
            if not self._is_even(before, held + self._erased(before) + _Total(then.rows, then.hash)):
                done.kept = UNEVEN
                return
            done.removed += old.rows
            if dry_run:
                done.removed += chosen.others
                return
            total = _Total(then.rows, then.hash) + old
            after = Expired(before, total.rows, total.hash)
            self._remove(table, chosen, Accounted(EXPIRED, text, after.as_text(), old.rows))
            if not chosen.others:
                return

    def _letters(self, limit: datetime) -> _Chosen | None:
        """Return the oldest dead letters that were closed before a time, by replays in the ledger."""
        names = stream_tables(self._stream)
        keys = [SOURCE, POSITION, LETTER]
        replayed = self._rows(names.ledger).where(sf.col(REPLAY).isNotNull())
        closed = self._rows(names.attempts).where(
            (sf.col(OUTCOME) == str(ReplayOutcome.CLOSED)) & (sf.col(INGESTED_AT) < sf.lit(limit))
        )
        closed = closed.join(replayed, closed[MICRO_BATCH_ID] == replayed["micro_batch_id"], "left_semi")
        letters = self._rows(names.dead_letters).where(sf.col(MICRO_BATCH_ID).isNotNull())
        letters = letters.select(
            SOURCE, POSITION, sf.coalesce(ATTEMPT, sf.lit(1)).alias(LETTER), sf.col(MICRO_BATCH_ID)
        )
        found = letters.join(closed.select(*keys), keys, "left_semi")
        oldest = found.orderBy(MICRO_BATCH_ID, *keys).limit(_AT_ONCE)
        rows = [tuple(row) for row in oldest.select(*keys, MICRO_BATCH_ID).collect()]
        if not rows:
            return None
        places = frozenset(row[:3] for row in rows)
        schema = f"{SOURCE} string, {POSITION} long, {LETTER} int"
        return _Chosen(
            self._spark.createDataFrame(sorted(places), schema),
            _LETTER_KEYS,
            partial(_are_letters, places),
            max(row[3] for row in rows) + 1,
            found.count() - _AT_ONCE if len(rows) == _AT_ONCE else 0,
        )

    def _verdicts(self, table: OpenTable, limit: datetime) -> _Chosen | None:
        """Return the rows of whole micro-batches that were judged before a time and are in silver."""
        newest = open_table(self._spark, silver_tables(self._stream).kept, silver_query(self._stream)).newest()
        ledger = self._rows(stream_tables(self._stream).ledger)
        recent = sf.min(sf.when(sf.col(INGESTED_AT) >= sf.lit(limit), sf.col("micro_batch_id")))
        first, last = ledger.agg(recent, sf.max("micro_batch_id")).collect()[0]
        if newest is None or last is None:
            return None
        before = min(int(newest.marker.end), last + 1 if first is None else first)
        old = self._rows(table.name).where(sf.col(MICRO_BATCH_ID) < before).select(MICRO_BATCH_ID).distinct()
        if old.isEmpty():
            return None
        on = {MICRO_BATCH_ID: f"row.{MICRO_BATCH_ID}"}
        return _Chosen(old, on, lambda rows: [True] * rows.num_rows, before)

    def _rows(self, name: str) -> DataFrame:
        return self._spark.table(f"{CATALOG}.{name}")

    def _sums(self, before: int, wanted: Wanted) -> tuple[_Total, _Total]:
        """Sum up the rows of micro-batches before a number: all rows, and the rows to remove."""
        with catalog_errors():
            table = self._catalog.load_table(self._table)
            columns = {column.name: column.name for column in table.schema().fields}
            scan = plan(table, self._table, columns, of_micro_batches(0, before))
        held, old = _Total(), _Total()
        for mine, mine_old in spread(self._spark, scan, partial(_sums_in, wanted=wanted, fields=self._fields)):
            held, old = held + mine, old + mine_old
        return held, old

    def _is_even(self, before: int, has: _Total) -> bool:
        """Return whether the ledger has the same number of rows and the same hashes for these micro-batches."""
        names, silver = stream_tables(self._stream), silver_tables(self._stream)
        ledger = self._rows(names.ledger if self._is_of_letters else silver.ledger)
        ledger = ledger.where(sf.col("micro_batch_id").between(0, before - 1))
        counted = _values(str(self._what)) if self._is_of_letters else sf.col(str(self._what))
        name = f"{self._what}{HASH_OF}"
        hashed = sf.col(name) if name in ledger.columns else sf.lit(None).cast("long")
        rows, hash_, lacking = ledger.agg(
            sf.coalesce(sf.sum(counted), sf.lit(0)),
            sf.coalesce(sf.sum(hashed.cast("decimal(38, 0)")), sf.lit(0)),
            sf.count_if(hashed.isNull()),
        ).collect()[0]
        return rows == has.rows and (lacking > 0 or signed(int(hash_)) == has.hash)

    def _erased(self, before: int) -> _Total:
        entries = read_account(self._catalog, self._stream).entries.get(self._table, {}).values()
        mine = [each.hash for each in entries if each.micro_batch is not None and each.micro_batch < before]
        return _Total(len(mine), signed(sum(mine)))

    def _remove(self, table: OpenTable, chosen: _Chosen, account: Accounted) -> None:
        with removal_errors(table.name, "Run the command again."):
            if not remove(table, chosen.keys, chosen.on, "expired", account):
                raise CollisionError("its rows are gone")


def _values(counts: str) -> Column:
    """Return the sum of the values of a map."""
    values = sf.coalesce(sf.map_values(counts), sf.array().cast("array<bigint>"))
    return sf.aggregate(values, sf.lit(0).cast("bigint"), lambda total, value: total + value)


def _are_letters(places: frozenset[tuple[str, int, int]], rows: pa.RecordBatch) -> list[bool]:
    columns = [rows.column(name).to_pylist() for name in (SOURCE, POSITION, ATTEMPT)]
    return [(source, position, letter or 1) in places for source, position, letter in zip(*columns, strict=True)]


def _sums_in(part: Scan, wanted: Wanted, fields: Sequence[Field]) -> tuple[_Total, _Total]:
    held, old = _Total(), _Total()
    for rows in read(part):
        hashes = row_hashes(rows, fields)
        mine = hashes[np.array(wanted(rows), np.bool_)]
        held += _Total(len(hashes), sum_of(hashes))
        old += _Total(len(mine), sum_of(mine))
    return held, old


def lines_of(done: Sequence[RetainedRows], *, dry_run: bool) -> Iterator[str]:
    """Yield the results as lines for people."""
    for each in done:
        said = "would be removed" if dry_run else "removed"
        yield f"{each.table}: {count_of(each.removed, 'row')} older than {each.older_than} {said}."
        if each.kept:
            yield f"  Others stay: {each.kept}."
