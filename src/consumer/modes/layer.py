"""A mode as a layer of the engine: the content of a micro-batch, the state before it, and its commits.

Its commits are the writes to its sinks, then the file that marks the micro-batch as done. After a crash at any point,
the same work is repeated: the plan has the content of the micro-batch, the newest commit has the state before it, so
every message gets the same verdict, and every file the same name and content.
"""

import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import structlog
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from consumer.layers.base import Commits, Layer
from consumer.layers.buckets import DamagedError, mended
from consumer.modes.checkpoint import Checkpoint, Commit, Counts, Identity
from consumer.modes.kept import Keys, Progress, decide, follow, write_keys
from consumer.modes.plan import Micros, ModePlan, next_end, tasks_between
from consumer.modes.sinks import Folder, window_messages
from consumer.modes.tasks import Mask, Piece, Work, judge, write_kept
from consumer.modes.windows import OPEN, as_final, merged, split_final, touched, windows_of
from consumer.scope import Scope
from consumer.sources.kafka.read import MessagesLostError, lost, truncated
from consumer.spreading import ResultT, attempted, succeeded
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.kafka.create import TopicSpec, ready_topic
from lakeproof.kafka.modes import Mode
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.sending import Sending
from lakeproof.kafka.topic import Topic
from lakeproof.settings import Settings
from lakeproof.state.lease import mode_lease

log = structlog.get_logger()


class ModeLayer(Layer[ModePlan]):
    """Follows a topic, with a checkpoint instead of tables; `to_the_end` takes only the messages available by now."""

    event = "micro-batch"
    stream = ""

    def __init__(self, settings: Settings, mode: Mode, *, to_the_end: bool) -> None:
        self.name = str(mode.name)
        # Two modes of the same kind may run at the same time, each with its own checkpoint.
        self.lease_name = mode_lease(mode.name, mode.checkpoint)
        topics = [f"kafka:{topic}" for topic in (mode.kafka, mode.aside_topic) if topic]
        folders = [root for root in (mode.parquet, None if mode.aside_topic else mode.aside) if root]
        self.reads, self.writes = [f"kafka:{mode.topic}"], [*topics, *folders]
        self._settings = settings
        self._mode = mode
        self._to_the_end = to_the_end
        self._known: _Known | None = None
        self.key_index: Path | None = None
        self._responded = time.monotonic()

    @classmethod
    def in_scope(cls, scope: Scope) -> Iterable[Self]:  # noqa: ARG003 - a mode is asked for by its own command line
        """Return nothing: streams have no modes."""
        return ()

    def resume(self) -> None:
        """Create missing topics, check that topics, folders and checkpoint fit together, and load the state."""
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
        self.key_index = Path(settings.home) / "modes" / identity.id
        keys = Keys(self.key_index, mode.watermark)
        oldest = self._oldest(commit.watermark if commit else None)
        recent = [each for each, _ in checkpoint.commits()]
        mended(lambda: follow(keys, checkpoint, commit, recent, oldest), keys.clear)
        end = None
        if self._to_the_end:
            extents = topic.extents(partitions)
            end = Offsets.of(mode.topic, {partition: extent.end for partition, extent in extents.items()})
        still_open = checkpoint.read_table(commit.windows, OPEN) if commit and commit.windows else OPEN.empty_table()
        self._known = _Known(topic, checkpoint, identity, keys, commit, plan, still_open, end)

    def close(self) -> None:
        """Close the index of ids, so that another process can open it."""
        if self._known:
            self._known.keys.close()
            self._known = None

    def next(self, spark: SparkSession) -> ModePlan | None:
        """Return an interrupted micro-batch, or one with new messages; None without new messages or a server."""
        try:
            plan = self._resumed.plan or self._begin(spark.sparkContext.defaultParallelism)
        except UnavailableError as error:
            if self._to_the_end or time.monotonic() > self._responded + self._settings.kafka.timeout_seconds:
                raise
            log.warning("waiting", mode=self.name, message=error.message, hint=error.hint)
            return None
        self._responded = time.monotonic()
        return plan

    def compute(self, spark: SparkSession, plan: ModePlan) -> Commits:
        """Judge messages and set some aside, decide which events are kept, then write them to the sinks."""
        mode, settings = self._mode, self._settings
        work = Work(mode, plan.number, plan.watermark, plan.at, settings.kafka, settings.limits, settings.s3)
        tasks = spark.sparkContext.parallelize(list(enumerate(plan.tasks)), len(plan.tasks))
        read = tasks.map(attempted(lambda task: judge(work, *task)))
        has_rows = mode.window is None
        if has_rows:  # tasks write the rows after it is decided which are kept
            read = read.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            pieces = _checked(read.map(_head).collect())
            kept = self._decide(pieces, plan)
            if has_rows:
                masks = [Mask.of(*each) for each in zip(pieces, kept, strict=True)]
                yield lambda: _checked(read.map(attempted(partial(write_kept, work, masks))).collect())
        finally:
            if has_rows:
                read.unpersist()
        watermark = self._watermark_after(pieces, plan)
        events = pa.concat_tables([each.events.filter(pa.array(mask)) for each, mask in zip(pieces, kept, strict=True)])
        windows = None
        if mode.window:
            new = windows_of(events["user"], events["time"], events["amount"], mode.window)
            whole = merged(self._resumed.open, new)
            final, windows = split_final(whole, mode.window, watermark)
            yield partial(self._show_windows, plan, mode.window, final, touched(whole, new))
        counts = Counts(
            kept=events.num_rows,
            duplicates=sum(len(mask) for mask in kept) - events.num_rows,
            late=sum(piece.late for piece in pieces),
            bad=sum(piece.bad for piece in pieces),
        )
        yield partial(self._commit, plan, events, watermark, windows, counts)
        return {"mode": self.name, "number": plan.number, "messages": counts.messages, **vars(counts)}

    @property
    def totals(self) -> Counts:
        """Counts of all messages so far."""
        commit = self._resumed.commit
        return commit.totals if commit else Counts()

    def _begin(self, cores: int) -> ModePlan | None:
        """Plan the next micro-batch, and record the plan; return None if there are no new messages."""
        known = self._resumed
        if known.in_doubt:
            _, known.plan = known.checkpoint.newest()
            known.in_doubt = False
            if known.plan:
                return known.plan
        start = known.commit.end if known.commit else known.identity.start
        topic_id, partitions = known.topic.identity()
        known.checkpoint.check(known.identity, self._mode, topic_id)
        extents = known.topic.extents(partitions)
        for partition, extent in extents.items():
            wanted, name = start.next(partition), self._mode.topic
            if extent.first > wanted:
                raise _hinted(lost(name, partition, wanted, extent.first))
            if extent.end < wanted:
                but = f"the checkpoint is at {wanted:,}: brokers lost messages."
                raise _hinted(truncated(name, partition, extent.end, but))
        if known.end:
            extents = {
                partition: replace(extent, end=min(extent.end, known.end.next(partition)))
                for partition, extent in extents.items()
            }
        end = next_end(start, extents, self._mode.max_offsets)
        tasks = tasks_between(start, end, cores)
        if not tasks:
            return None
        number = known.commit.number + 1 if known.commit else 0
        watermark = known.commit.watermark if known.commit else None
        plan = ModePlan(number, start, end, tasks, watermark, time.time_ns() // 1000)
        try:
            known.checkpoint.begin(plan)
        except UnavailableError:
            known.in_doubt = True
            raise
        known.plan = plan
        return plan

    def _decide(self, pieces: Sequence[Piece], plan: ModePlan) -> list[Any]:
        """Return which events of each piece are kept."""
        ids = pa.concat_tables([piece.events for piece in pieces])["id"].combine_chunks()
        known, oldest = self._resumed, self._oldest(plan.watermark)

        def look_up() -> Any:
            follow(known.keys, known.checkpoint, known.commit, (), oldest)
            return decide(ids, known.keys, oldest)

        kept = mended(look_up, known.keys.clear)
        edges = np.cumsum([piece.events.num_rows for piece in pieces])[:-1]
        return list(np.split(kept, edges))

    def _show_windows(self, plan: ModePlan, size: Micros, final: pa.Table, changed: pa.Table) -> None:
        """Write windows to the sinks: final windows to files, changed windows to the topic."""
        mode = self._mode
        if mode.parquet:
            Folder(mode.parquet, self._settings.s3).write("windows", plan.number, "0000", as_final(final, size))
        if mode.kafka:
            own = window_messages(changed, size, f"{self._resumed.identity.id}/{plan.number}")
            Sending(self._settings.kafka, mode.kafka).send(own)

    def _commit(
        self, plan: ModePlan, events: pa.Table, watermark: Micros | None, windows: pa.Table | None, counts: Counts
    ) -> None:
        """Record the state after the micro-batch."""
        known = self._resumed
        before, oldest = known.commit, self._oldest(watermark)
        rows = pa.table({"id": events["id"].cast(pa.binary()), "time": events["time"]})
        files = write_keys(known.checkpoint, plan.number, before.keys if before else (), rows, oldest)
        name = f"windows-{plan.number}.parquet" if windows is not None else None
        if name and windows is not None:
            known.checkpoint.write_table(name, windows)
        totals = (before.totals if before else Counts()) + counts
        commit = Commit(plan.number, uuid.uuid4().hex, plan.end, watermark, files, name, counts, totals)
        known.checkpoint.commit(commit)
        # Only now: in a repeated micro-batch, the ids would be duplicates of themselves.
        pairs: Any = zip(rows["id"].to_pylist(), rows["time"].to_pylist(), strict=True)
        with suppress(DamagedError):  # the next micro-batch fills the index again from the checkpoint
            known.keys.add(pairs, Progress(commit.number, commit.id), oldest)
        known.commit, known.plan = commit, None
        if windows is not None:
            known.open = windows
        known.checkpoint.tidy(commit)

    def _watermark_after(self, pieces: Sequence[Piece], plan: ModePlan) -> Micros | None:
        """Return the watermark of the next micro-batch, which never goes back."""
        newest = [piece.newest - self._mode.watermark for piece in pieces if piece.newest is not None]
        known = [*newest, *([] if plan.watermark is None else [plan.watermark])]
        return max(known, default=None)

    def _oldest(self, watermark: Micros | None) -> Micros | None:
        """Return the time before which kept events can be forgotten: later duplicates are late or too far away."""
        return None if watermark is None else watermark - self._mode.watermark

    @property
    def _resumed(self) -> "_Known":
        if self._known is None:
            raise RuntimeError("A mode is resumed before it is run.")
        return self._known


@dataclass
class _Known:
    """The state between two micro-batches."""

    topic: Topic
    checkpoint: Checkpoint
    identity: Identity
    keys: Keys
    commit: Commit | None
    plan: ModePlan | None  # of a micro-batch that was begun but not committed
    open: pa.Table
    end: Offsets | None
    in_doubt: bool = False  # whether the checkpoint may have a plan, since an answer was lost


def _head(piece: Piece | LakeproofError) -> Piece | LakeproofError:
    """Return a piece without its rows, which the driver does not need."""
    return replace(piece, rows=None) if isinstance(piece, Piece) else piece


def _checked(results: list[ResultT | LakeproofError]) -> list[ResultT]:
    try:
        return succeeded(results)
    except MessagesLostError as error:
        raise _hinted(error) from None


def _hinted(error: LakeproofError) -> LakeproofError:
    error.hint = (
        "Restore the topic, or let it keep messages for longer. To resume without them, begin again with a new "
        "checkpoint and new sinks; the old ones keep their data."
    )
    return error
