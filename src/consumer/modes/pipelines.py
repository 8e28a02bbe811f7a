"""What is known of the modes that have run, without Spark: their checkpoints, and what their topics have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from consumer.modes.checkpoint import Checkpoint
from consumer.modes.plan import Micros
from lakeproof.errors import LakeproofError
from lakeproof.kafka.modes import ModeName
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.topic import Topic
from lakeproof.settings import Settings
from lakeproof.state.lease import mode_lease, modes_with_leases

_RATE_OVER = timedelta(minutes=1)


@dataclass(frozen=True)
class Pipeline:
    """A mode with a checkpoint of its own."""

    mode: ModeName
    checkpoint: str
    lease: str
    behind: int | None = None  # messages that it has not read; None where that is not known
    per_second: float | None = None  # events that it kept in the last minute
    last_commit: datetime | None = None  # UTC
    watermark: Micros | None = None  # of its next micro-batch
    problem: str = ""  # why something is not known

    @property
    def name(self) -> str:
        """The mode, and its checkpoint."""
        return f"{self.mode} {self.checkpoint}"


def pipelines(settings: Settings, modes: Sequence[ModeName]) -> Iterator[Pipeline]:
    """The modes of these kinds that have run and still have a checkpoint, as that and their topics show them."""
    for mode in modes:
        for checkpoint in modes_with_leases(settings.state.database, mode):
            lease = mode_lease(mode, checkpoint)
            try:
                found = _look(settings, mode, checkpoint, lease)
            except LakeproofError as error:
                found = Pipeline(mode, checkpoint, lease, problem=error.message)
            if found:
                yield found


def _look(settings: Settings, mode: ModeName, root: str, lease: str) -> Pipeline | None:
    checkpoint = Checkpoint(root, settings.s3)
    identity = checkpoint.identity()
    if identity is None:
        return None
    recent = checkpoint.commits()
    newest, at = recent[-1] if recent else (None, None)
    watermark = newest.watermark if newest else None
    try:
        behind, problem = _behind(settings, identity.topic_id, newest.end if newest else identity.start), ""
    except LakeproofError as error:
        behind, problem = None, error.message
    rate = per_second([(when, commit.totals.kept, commit.counts.kept) for commit, when in recent], datetime.now(UTC))
    return Pipeline(mode, root, lease, behind, rate, at, watermark, problem)


def _behind(settings: Settings, topic_id: str, at: Offsets) -> int:
    topic = Topic(settings.kafka, at.topic)
    found, partitions = topic.identity()
    if found != topic_id:
        raise LakeproofError(f"The topic {at.topic} was deleted and created again.", "Restore the topic.")
    return topic.behind(at, partitions)


def per_second(commits: Sequence[tuple[datetime, int, int]], now: datetime) -> float:
    """Events per second of the last minute.

    Of each commit that is kept: when it was, how many events had been kept by then, and how many by itself.
    """
    new = [(at, total, own) for at, total, own in commits if at >= now - _RATE_OVER]
    if not new:
        return 0.0
    first, total, own = new[0]
    counted = new[-1][1] - total
    if len(new) < len(commits) or total == own:
        return round((counted + own) / _RATE_OVER.total_seconds(), 1)
    # A busy mode keeps fewer commits than it makes in a minute.
    return round(counted / max((now - first).total_seconds(), 1.0), 1)
