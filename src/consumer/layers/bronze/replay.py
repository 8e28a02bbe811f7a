"""Replays: dead letters are judged again under the current contract, and those that pass land in bronze.

A replay consists of micro-batches of the stream, each with a number and markers like any other, but takes nothing new
from the source. The attempts are committed first: they record the dead letters taken and the outcome of each. After a
crash, the rest is computed from the attempts, under the contract and the limits with which the replay began.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.marker import Committed, Marker, check_attempts, unfinished
from consumer.iceberg.scan import Scan, read, spread
from consumer.iceberg.tasks import write_batches, write_in_tasks
from consumer.layers.base import Append, Commits, Computing
from consumer.layers.bronze.ledger import MicroBatch, replay_rows
from consumer.layers.bronze.letters import (
    Choice,
    as_chosen,
    attempts_of,
    begun,
    chosen,
    evaluated,
    first,
    transformed,
    untouched,
    with_etags,
)
from consumer.layers.bronze.replay_tasks import replay
from consumer.layers.bronze.replayed import Replayed, ReplayTask
from consumer.layers.bronze.sums import sums_in_tables
from consumer.layers.bronze.transform import Transform
from consumer.layers.upstream import recorded_contract
from consumer.sources.source import Source
from lakeproof.catalog import catalog_errors, open_catalog, table_or_none
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import Contract
from lakeproof.errors import LakeproofError
from lakeproof.kafka.offsets import partition_name
from lakeproof.settings import Limits, Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.tables.names import NEXT_MICRO_BATCH, ReplayOutcome, stream_tables
from lakeproof.tables.schemas import ensure_attempts

MOST_LETTERS = 1_000_000
"""Maximum number of dead letters in a micro-batch. A crash repeats at most one micro-batch."""
CHECKPOINT = "replay"
"""Value in the ledger in place of the id of a checkpoint."""


@dataclass(frozen=True)
class Replay:
    """A replay that an operator requests."""

    choice: Choice = field(default_factory=Choice)
    max_attempts: int = 3
    salvage: bool = False
    transform: Transform | None = None
    expression: str | None = None  # a transform in Spark SQL

    @property
    def evaluates(self) -> str:
        """The options whose SQL Spark evaluates for each dead letter."""
        of_transform = [f"--transform {self.transform.name}"] if self.transform and self.expression else []
        return " or ".join([*["--where"] * bool(self.choice.where), *of_transform])


@dataclass(frozen=True)
class Letters:
    """The dead letters of a micro-batch."""

    rows: DataFrame | Scan
    marker: Marker
    is_repeated: bool = False  # whether this finishes an interrupted replay
    are_last: bool = False  # whether a command takes no more after these


class ReplayLayer(Computing[Letters]):
    """Replays dead letters of a stream."""

    event = "replay"

    def __init__(
        self,
        settings: Settings,
        stream: str,
        source: Source[Any],
        *,
        of_topic: bool,
        schema_id_of: Callable[[Contract], int | None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._stream = stream
        self.name = bronze_query(stream)
        self._tables = stream_tables(stream)
        self._source = source
        self._of_topic = of_topic
        self._contracts = ContractLog(settings.state.database)
        self._schema_id_of = schema_id_of
        self._wanted = Replay()
        self._since: tuple[int, int] | None = None
        self._left: int | None = None
        self._has_all = False
        self.done = Replayed()

    def ask(self, wanted: Replay) -> None:
        """Set what to replay."""
        self._wanted, self._left, self._has_all = wanted, wanted.choice.limit, False

    def prepare(self) -> None:
        """Create the table of attempts."""
        ensure_attempts(open_catalog(self._settings), self._stream)

    def interrupted(self, spark: SparkSession) -> Letters:
        """Return the micro-batch that was begun and is not in the ledger."""
        newest = self._open(spark, self._tables.attempts).newest()
        ledger = self._open(spark, self._tables.ledger).newest()
        if newest is None or ledger is None:
            raise RuntimeError("There is no interrupted replay.")
        number = int(newest.marker.end)
        place = ledger.marker.end
        marker = replace(newest.marker, start=place, end=place, replays=number)
        return Letters(begun(spark, self._tables, number), marker, is_repeated=True)

    def next(self, spark: SparkSession, contract: str) -> Letters | None:
        """Return the dead letters to judge next, under the contract with this digest; None if none are left."""
        if self._has_all:
            return None
        rows, size, are_last = self._chosen(spark, tried=True)
        if not size:
            return None
        ledger = self._open(spark, self._tables.ledger).newest()
        if ledger is None:
            raise RuntimeError("There are no dead letters without a ledger.")
        place, number = ledger.marker.end, ledger.marker.replays + 1
        marker = Marker(CHECKPOINT, 0, contract, place, place, self._settings.limits, replays=number)
        return Letters(rows, marker, are_last=are_last)

    def preview(self, spark: SparkSession, contract: Contract, *, tried: bool) -> Replayed:
        """Judge the requested dead letters without changing any table."""
        batch = MicroBatch(0, CHECKPOINT, contract, datetime.now(UTC), self._schema_id_of(contract))
        rows, _, _ = self._chosen(spark, tried=tried)
        return self._work(spark, rows, self._task(batch, 0, self._settings.limits))

    def compute(self, spark: SparkSession, work: Letters) -> Commits:
        """Judge dead letters; yield the commits of attempts, bronze, dead letters and, last, the ledger."""
        names, marker = self._tables, work.marker
        missing = f"A replay was begun with a contract ({marker.contract[:12]}…) that the landing log does not have."
        contract = recorded_contract(self._contracts, marker.contract, missing)
        attempts, bronze, dead_letters, ledger = (
            self._open(spark, name) for name in (names.attempts, names.bronze, names.dead_letters, names.ledger)
        )
        before, has_begun = ledger.newest(), bronze.newest()
        # Raises an error for tables that do not fit together.
        unfinished(self._stream, has_begun, dead_letters.newest(), before, self._source.is_origin)
        check_attempts(self._stream, attempts.newest(), before.marker.replays if before else 0)
        least = int(ledger.property(NEXT_MICRO_BATCH) or 0)
        number = marker.micro_batch_id if work.is_repeated else _number(before, least)
        marker = replace(marker, micro_batch_id=number)
        of_attempts = replace(marker, start=str(marker.replays - 1), end=str(marker.replays), replays=0)
        rows_of_ledger = ledger.target(marker)
        logged = {"stream": self._stream, "contract": contract.version, "id": number}
        if rows_of_ledger is None:
            return logged | {"done": "before"}
        spark.sparkContext.setJobDescription(f"replay of dead letters of {self._stream}")
        batch = MicroBatch(number, CHECKPOINT, contract, datetime.now(UTC), self._schema_id_of(contract))
        task = replace(
            self._task(batch, marker.replays, marker.limits),
            attempts=attempts.target(of_attempts),
            bronze=bronze.target(marker),
            dead_letters=dead_letters.target(marker),
            is_repeated=work.is_repeated,
        )
        done = self._work(spark, work.rows, task)
        if work.is_repeated:
            self._check_whole(spark, done, marker.replays)
        yield Append(attempts, of_attempts, done.attempts)
        commits = Append(bronze, marker, done.bronze), Append(dead_letters, marker, done.dead_letters)
        yield from commits
        part_of = partition_name if self._of_topic else str
        sums = sums_in_tables(spark, self._settings, batch, done.sums, *commits, part_of)
        rows = replay_rows(done.parts, done.outcomes, done.drift, done.closed, marker.replays, batch, sums)
        yield Append(ledger, marker, write_batches([rows], rows_of_ledger, self._settings.s3).files)
        self.done.add(replace(done, attempts=[], bronze=[], dead_letters=[]))
        if not work.is_repeated:
            self._since, self._has_all = self._since or (marker.replays, number), work.are_last
            if self._left is not None:
                self._left -= done.letters
        outcomes = Counter[str]()
        for (_, outcome, _), count in done.fates.items():
            outcomes[str(outcome)] += count
        landed = sum(count for (_, reasons), count in done.outcomes.items() if reasons is None)
        return logged | {str(each): outcomes[each] for each in ReplayOutcome} | {"bronze": landed}

    def _open(self, spark: SparkSession, name: str) -> OpenTable:
        return open_table(spark, name, self.name)

    def _chosen(self, spark: SparkSession, *, tried: bool) -> tuple[DataFrame | Scan, int, bool]:
        """Return the requested dead letters not taken yet, their number, and whether they are the last.

        At most one micro-batch is returned.
        """
        wanted = self._wanted
        if found := self._untouched():
            return found
        with evaluated(wanted.evaluates):
            return self._counted(spark, tried=tried)

    def _counted(self, spark: SparkSession, *, tried: bool) -> tuple[DataFrame | Scan, int, bool]:
        wanted = self._wanted
        rows = chosen(spark, self._tables, wanted.choice, self._since, tried=tried)
        most = MOST_LETTERS if self._left is None else min(MOST_LETTERS, self._left)
        if not most:
            return rows, 0, True
        size = rows.count()
        are_last = size <= most
        if not are_last:
            rows, size = first(rows, most), most
        name = wanted.transform.name if wanted.transform else ""
        return with_etags(spark, self._tables, transformed(rows, wanted.expression, name)), size, are_last

    def _untouched(self) -> tuple[Scan, int, bool] | None:
        """Return all dead letters, if all are requested and none was ever tried."""
        wanted = self._wanted
        if wanted.choice.where or wanted.expression:
            return None
        with catalog_errors():
            catalog = open_catalog(self._settings)
            attempts = table_or_none(catalog, self._tables.attempts)
            scan = untouched(catalog.load_table(self._tables.dead_letters), attempts, of_topic=self._of_topic)
        size = sum(each.file.record_count for each in scan.files) if scan else 0
        if scan is None or size > (MOST_LETTERS if self._left is None else min(MOST_LETTERS, self._left)):
            return None
        return scan, size, True

    def _task(self, batch: MicroBatch, number: int, limits: Limits) -> ReplayTask:
        wanted, settings = self._wanted, self._settings
        return ReplayTask(
            batch,
            number,
            self._source.reader,
            settings.s3,
            limits,
            settings.judge,
            self._of_topic,
            wanted.max_attempts,
            wanted.salvage,
            wanted.transform,
        )

    def _work(self, spark: SparkSession, rows: DataFrame | Scan, task: ReplayTask) -> Replayed:
        work, done = partial(replay, task=task), Replayed()
        if isinstance(rows, Scan):
            found = spread(spark, rows, lambda part: work(map(as_chosen, read(part))))
        else:
            with evaluated(self._wanted.evaluates):
                found = write_in_tasks(rows, work)
        for each in found:
            done.add(each)
        return done

    def _check_whole(self, spark: SparkSession, done: Replayed, number: int) -> None:
        recorded = attempts_of(spark, self._tables, number)
        if done.letters != recorded:
            raise LakeproofError(
                f"An interrupted replay took {recorded:,} dead letters, but dead_letters.{self._stream} has "
                f"{done.letters:,} of them: rows were removed since then.",
                "Restore the stream's tables together, from one backup of the catalog.",
            )


def _number(before: Committed | None, least: int) -> int:
    return max(before.next_number if before else 0, least)
