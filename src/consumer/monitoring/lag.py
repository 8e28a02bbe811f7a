"""How far queries are behind: in files, messages and micro-batches, and in seconds."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from consumer.iceberg.marker import Committed
from lakeproof.contracts import Contract
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.recorded import Recorded, recorded_topic
from lakeproof.kafka.topic import Topic
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandingLog, Position
from lakeproof.storage import scheme_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

RATE_OVER = timedelta(minutes=1)
"""The time over which rates are counted."""
_RECENT_FILES = 1000


def landed_behind(
    settings: Settings, stream: str, ledger: "Table", accounted: Committed | None, *, recent: bool
) -> tuple[int, float | None, str]:
    """Return the amount of landed data that is in no table yet, the age of the oldest item, and the unit."""
    if recorded := recorded_topic(ledger.properties):
        at = Offsets.parse(accounted.marker.end) if accounted else recorded.start
        return *messages_behind(settings, recorded, at), "messages"
    log = LandingLog(settings.state.database, stream)
    seq = Position.parse(accounted.marker.end).seq if accounted else 0
    zone = landing_zone(settings, stream, ledger.properties)
    if recent and scheme_of(zone.root) == "s3":
        newest = log.newest_names(_RECENT_FILES)
        listed = zone.list_recent(newest[0] if newest else None)
    else:
        listed = zone.list()
    landed = [file.modified_at for name, file in log.new_among(listed) if not zone.ignores(name, file)]
    waiting = len(landed) + max(log.head().seq - seq, 0)
    landed += (file.landed_at for file in log.files(seq, seq + 1))
    return waiting, age_of_oldest(waiting, min(landed, default=None)), "files"


def messages_behind(settings: Settings, recorded: Recorded, at: Offsets) -> tuple[int, float | None]:
    """Return the number of messages after offsets of a stream's topic, and how long the oldest has been waiting."""
    topic = Topic(settings.kafka, recorded.topic)
    topic_id, partitions = topic.identity()
    recorded.check_id(topic_id)
    return behind_in_topic(topic, at, partitions)


def behind_in_topic(topic: Topic, at: Offsets, partitions: Sequence[int]) -> tuple[int, float | None]:
    """Return the number of messages after offsets of a topic, and how long the oldest has been waiting."""
    lag = topic.behind(at, partitions)
    return lag, age_of_oldest(lag, topic.waiting_since(at, partitions) if lag else None)


def micro_batches_behind(followed: Committed | None, follower: Committed | None) -> int:
    """Return the number of micro-batches that one table has and another one lacks."""
    return max((followed.next_number if followed else 0) - (follower.next_number if follower else 0), 0)


def closed_behind(contract: Contract, decided: Committed | None, computed: Committed | None, every: int = 1) -> int:
    """Return the number of micro-batches that a product lacks; 0 until silver's horizon passes its next multiple.

    The marker of samples and final windows has a horizon, and only moves when more of them are final: at each multiple
    of `every`, in microseconds.
    """
    length = contract.silver.horizon if contract.silver else None
    if length is None or decided is None or not decided.marker.contents:
        return 0
    horizon = int(decided.marker.contents) - length // timedelta(microseconds=1)
    done = computed.marker.contents if computed else ""
    return 0 if done and horizon // every <= int(done) // every else micro_batches_behind(decided, computed)


def age_of_oldest(lag: int | None, since: datetime | None) -> float | None:
    """Return how long the oldest item that a query lacks has been waiting."""
    if since is None:
        return 0.0 if lag == 0 else None
    return max((datetime.now(UTC) - since).total_seconds(), 0.0)


def per_second(commits: Sequence[tuple[datetime, int, int]], now: datetime) -> float:
    """Return the events per second of the last minute.

    `commits` has, for each retained commit, its time, the total of events kept by then, and the events kept by it.
    """
    new = [(at, total, own) for at, total, own in commits if at >= now - RATE_OVER]
    if not new:
        return 0.0
    first, total, own = new[0]
    counted = new[-1][1] - total
    if len(new) < len(commits) or total == own:
        return round((counted + own) / RATE_OVER.total_seconds(), 1)
    # A busy mode keeps fewer commits than it makes in a minute.
    return round(counted / max((now - first).total_seconds(), 1.0), 1)
