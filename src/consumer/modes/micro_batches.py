"""The work of a micro-batch of a mode: plan, judge, keep, write, commit.

A crash at any point is repaired by doing the same again: the plan says what the micro-batch holds, the newest commit
says what was known before it, and so every message gets the same verdict, and every file the same name and content.
"""

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from consumer.layers.buckets import DamagedError, mended
from consumer.modes.checkpoint import Checkpoint, Commit, Counts, Identity, with_totals
from consumer.modes.kept import decide, follow, write_keys
from consumer.modes.keys import Keys, Progress
from consumer.modes.plan import Micros, Plan, next_end, tasks_between
from consumer.modes.rows import from_bytes
from consumer.modes.sinks import Folder, window_messages
from consumer.modes.tasks import Piece, Work, judge, write_kept
from consumer.modes.windows import OPEN, as_final, merged, split_final, touched, windows_of
from consumer.sources.kafka.read import MessagesLostError
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.kafka.create import TopicSpec, ready_topic
from lakeproof.kafka.modes import Mode
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.sending import Sending
from lakeproof.kafka.topic import Topic
from lakeproof.settings import Settings

log = structlog.get_logger()

_TASKS_PER_CORE = 1


class MicroBatches:
    """The micro-batches of a mode.

    Parameters
    ----------
    settings
        Where everything is.
    mode
        What to do.
    to_the_end
        Take only the offsets that the topic has when this is prepared.
    """

    def __init__(self, settings: Settings, mode: Mode, *, to_the_end: bool) -> None:
        self.count = 0
        self._settings = settings
        self._mode = mode
        self._to_the_end = to_the_end
        self._ready: _Ready | None = None
        self._responded = time.monotonic()

    def prepare(self) -> None:
        """Make sure that topics, folders and checkpoint fit together, and load what is known.

        Topics of sinks are created if they are missing.

        Raises
        ------
        LakeproofError
            The topic that is read is missing, or they do not fit together.
        """
        mode, settings = self._mode, self._settings
        topic = Topic(settings.kafka, mode.topic)
        topic_id, partitions = topic.identity()
        for sink in (mode.kafka, mode.aside_topic):
            if sink:
                ready_topic(settings.kafka, TopicSpec.of(sink, settings.topics))
        checkpoint = Checkpoint(mode.checkpoint, settings.s3)
        identity = checkpoint.identity()
        roots = (mode.parquet, None if mode.aside_topic else mode.aside)
        folders = [Folder(root, settings.s3) for root in roots if root]
        if identity is None:
            for folder in folders:
                folder.check_unclaimed()  # a first run that is refused leaves no checkpoint
            identity = checkpoint.create(mode, topic_id, topic.starting(mode.starting_offsets, partitions))
        checkpoint.check(identity, mode, topic_id)
        commit, plan = checkpoint.newest()
        next_number = plan.number + 1 if plan else commit.number + 1 if commit else 0
        for folder in folders:
            folder.claim(identity.id, next_number)
        self.close()
        keys = Keys(Path(settings.home) / "modes" / identity.id, mode.watermark)
        oldest = self._oldest(commit.watermark if commit else None)
        recent = checkpoint.recent()
        mended(lambda: follow(keys, checkpoint, commit, recent, oldest), keys.clear)
        end = None
        if self._to_the_end:
            extents = topic.extents(partitions)
            end = Offsets.of(mode.topic, {partition: extent.end for partition, extent in extents.items()})
        self._ready = _Ready(topic, checkpoint, identity, keys, commit, plan, _open(checkpoint, commit), end)

    def close(self) -> None:
        """Let another process have the ids."""
        if self._ready:
            self._ready.keys.close()
            self._ready = None

    def take(self, spark: SparkSession) -> bool:
        """Do the next micro-batch; return whether there was one.

        Raises
        ------
        LakeproofError
            It cannot be done; nothing is committed then.
        """
        ready = self._prepared
        try:
            plan = ready.plan or self._plan(spark)
            self._responded = time.monotonic()
        except UnavailableError as error:
            if self._to_the_end or time.monotonic() > self._responded + self._settings.kafka.timeout_seconds:
                raise
            log.warning("waiting for Kafka", mode=str(self._mode.name), why=error.message)
            return False
        if plan is None:
            return False
        started = time.monotonic()
        work = Work(
            self._mode,
            plan.number,
            plan.watermark,
            plan.at,
            self._settings.kafka,
            self._settings.limits,
            self._settings.s3,
        )
        read = spark.sparkContext.parallelize(list(enumerate(plan.tasks)), len(plan.tasks)).map(partial(_judge, work))
        if self._mode.window is None:
            read = read.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            pieces = _checked(read.map(_head).collect())
            kept = self._decide(pieces, plan)
            if self._mode.window is None:
                masks = [np.packbits(mask).tobytes() for mask in kept]
                _checked(read.map(partial(_write_kept, work, masks)).collect())
        finally:
            if self._mode.window is None:
                read.unpersist()
        watermark = self._watermark_after(pieces, plan)
        windows = self._windows(pieces, kept, plan, watermark) if self._mode.window else None
        commit = self._commit(pieces, kept, plan, watermark, windows)
        self.count += 1
        log.info(
            "micro-batch",
            mode=str(self._mode.name),
            number=plan.number,
            messages=commit.counts.messages,
            **vars(commit.counts),
            seconds=round(time.monotonic() - started, 3),
        )
        return True

    @property
    def totals(self) -> Counts:
        """What became of all messages so far."""
        commit = self._prepared.commit
        return commit.totals if commit else Counts()

    def _plan(self, spark: SparkSession) -> Plan | None:
        """Decide what the next micro-batch holds, and write it down; None where there is nothing new."""
        ready = self._prepared
        start = ready.commit.end if ready.commit else ready.identity.start
        topic_id, partitions = ready.topic.identity()
        ready.checkpoint.check(ready.identity, self._mode, topic_id)
        extents = ready.topic.extents(partitions)
        for partition, extent in extents.items():
            wanted = start.next(partition)
            if extent.first > wanted and extent.end > wanted:
                raise _lost(f"Offsets {wanted:,} to {extent.first - 1:,} of partition {partition}", self._mode.topic)
            if extent.end < wanted:
                raise _lost(f"Offsets {extent.end:,} to {wanted - 1:,} of partition {partition}", self._mode.topic)
        if ready.end:
            extents = {
                partition: replace(extent, end=min(extent.end, ready.end.next(partition)))
                for partition, extent in extents.items()
            }
        end = next_end(start, extents, self._mode.max_offsets)
        tasks = tasks_between(start, end, _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
        if not tasks:
            return None
        number = ready.commit.number + 1 if ready.commit else 0
        watermark = ready.commit.watermark if ready.commit else None
        plan = Plan(number, start, end, tasks, watermark, time.time_ns() // 1000)
        ready.checkpoint.begin(plan)
        ready.plan = plan
        return plan

    def _decide(self, pieces: Sequence[Piece], plan: Plan) -> list[Any]:
        """Which events of each piece are kept."""
        tables = [from_bytes(piece.events) for piece in pieces]
        ids = pa.concat_tables(tables)["id"].combine_chunks()
        ready, oldest = self._prepared, self._oldest(plan.watermark)

        def look_up() -> Any:
            follow(ready.keys, ready.checkpoint, ready.commit, (), oldest)
            return decide(ids, ready.keys, oldest)

        kept = mended(look_up, ready.keys.clear)
        edges = np.cumsum([table.num_rows for table in tables])[:-1]
        return list(np.split(kept, edges))

    def _windows(self, pieces: Sequence[Piece], kept: Sequence[Any], plan: Plan, watermark: Micros | None) -> pa.Table:
        """Let the sinks have what kept events make of the windows; return those that stay open."""
        mode, ready = self._mode, self._prepared
        size = mode.window or 0
        events = _kept_events(pieces, kept)
        new = windows_of(events["user"], events["time"], events["amount"], size)
        windows = merged(ready.open, new)
        final, left = split_final(windows, size, watermark)
        if mode.parquet:
            Folder(mode.parquet, self._settings.s3).write("windows", plan.number, "0000", as_final(final, size))
        if mode.kafka:
            own = window_messages(touched(windows, new), size, f"{ready.identity.id}/{plan.number}")
            Sending(self._settings.kafka, mode.kafka).send(own)
        return left

    def _commit(
        self,
        pieces: Sequence[Piece],
        kept: Sequence[Any],
        plan: Plan,
        watermark: Micros | None,
        windows: pa.Table | None,
    ) -> Commit:
        """Write down what is known now."""
        ready = self._prepared
        events = _kept_events(pieces, kept)
        rows = pa.table({"id": events["id"].cast(pa.binary()), "time": events["time"]})
        oldest = self._oldest(watermark)
        before = ready.commit
        files = write_keys(ready.checkpoint, plan.number, before.keys if before else (), rows, oldest)
        name = None
        if windows is not None:
            output = pa.BufferOutputStream()
            pq.write_table(windows, output, compression="zstd")
            name = ready.checkpoint.write_state(f"windows-{plan.number}.parquet", output.getvalue().to_pybytes())
        events_read = sum(len(mask) for mask in kept)
        counts = Counts(
            kept=rows.num_rows,
            duplicates=events_read - rows.num_rows,
            late=sum(piece.late for piece in pieces),
            bad=sum(piece.bad for piece in pieces),
        )
        made = Commit(plan.number, uuid.uuid4().hex, plan.end, watermark, files, name, counts)
        commit = with_totals(made, before)
        ready.checkpoint.commit(commit)
        # Only now: ids of a micro-batch that is repeated would be duplicates of themselves.
        pairs: Any = zip(rows["id"].to_pylist(), rows["time"].to_pylist(), strict=True)
        with suppress(DamagedError):  # the next micro-batch fills them again from the checkpoint
            ready.keys.add(pairs, Progress(commit.number, commit.id), oldest)
        ready.commit, ready.plan = commit, None
        if windows is not None:
            ready.open = windows
        ready.checkpoint.tidy(commit)
        return commit

    def _watermark_after(self, pieces: Sequence[Piece], plan: Plan) -> Micros | None:
        """The watermark of the next micro-batch: it never goes back."""
        newest = [piece.newest - self._mode.watermark for piece in pieces if piece.newest is not None]
        known = [*newest, *([] if plan.watermark is None else [plan.watermark])]
        return max(known, default=None)

    def _oldest(self, watermark: Micros | None) -> Micros | None:
        """An event that was kept before this time meets no duplicate that is not late or too far from it."""
        return None if watermark is None else watermark - self._mode.watermark

    @property
    def _prepared(self) -> "_Ready":
        if self._ready is None:
            raise RuntimeError("A mode is prepared before it is run.")
        return self._ready


@dataclass
class _Ready:
    """What is known between two micro-batches."""

    topic: Topic
    checkpoint: Checkpoint
    identity: Identity
    keys: Keys
    commit: Commit | None
    plan: Plan | None
    open: pa.Table
    end: Offsets | None


def _judge(work: Work, task: tuple[int, Any]) -> Piece:
    return judge(work, *task)


def _head(piece: Piece) -> Piece:
    return piece.head


def _write_kept(work: Work, masks: Sequence[bytes], piece: Piece) -> Piece:
    return write_kept(work, masks[piece.index], piece)


def _checked(pieces: list[Piece]) -> list[Piece]:
    for piece in pieces:
        if isinstance(piece.failure, MessagesLostError):
            raise _hinted(piece.failure)
        if piece.failure:
            raise piece.failure
    return pieces


def _kept_events(pieces: Sequence[Piece], kept: Sequence[Any]) -> pa.Table:
    return pa.concat_tables(
        [from_bytes(piece.events).filter(pa.array(mask)) for piece, mask in zip(pieces, kept, strict=True)]
    )


def _open(checkpoint: Checkpoint, commit: Commit | None) -> pa.Table:
    if commit is None or commit.windows is None:
        return OPEN.empty_table()
    return pq.read_table(pa.BufferReader(checkpoint.read_state(commit.windows)), schema=OPEN)


def _lost(what: str, topic: str) -> LakeproofError:
    return _hinted(MessagesLostError(f"{what} of {topic} were removed from the topic before they were read."))


def _hinted(error: LakeproofError) -> LakeproofError:
    error.hint = (
        "Let the topic keep messages for longer. To resume without them, begin again with a new checkpoint and new "
        "sinks; what the old ones have stays."
    )
    return error
