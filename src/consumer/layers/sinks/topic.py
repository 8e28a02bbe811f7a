"""A sink that sends the committed rows of a table to a topic, at least once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame, SparkSession

from consumer.iceberg.append import OpenTable, open_table
from consumer.iceberg.marker import Committed, MarkerLostError
from consumer.iceberg.tasks import write_in_tasks
from consumer.layers.base import Commits, Layer
from consumer.layers.sinks.changes import Followed, dead_letters_followed, gold_followed, silver_followed
from consumer.layers.sinks.messages import shortened
from consumer.scope import Scope
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import SinkKind
from lakeproof.kafka.create import TopicSpec, ready_topic
from lakeproof.kafka.sending import Outgoing, Sending, SendingError, TooLargeError
from lakeproof.settings import KafkaSettings, Settings
from lakeproof.state.sink_positions import SinkPosition, SinkPositions, sink_lease

log = structlog.get_logger()


def sink_name(table: str, topic: str) -> str:
    """Return the name of the sink from a table to a topic."""
    return f"{table}-to-{topic}"


@dataclass(frozen=True)
class _Work:
    """The rows of a table after one marker (None for the start) up to another one, or up to one in between."""

    table: OpenTable
    position: SinkPosition | None
    since: Committed | None
    newest: Committed
    topic_id: str


class TopicSink(Layer[_Work]):
    """Sends rows of a table to a topic, then records the new position."""

    event = "sent"
    outlasts_outages = True

    def __init__(self, settings: Settings, followed: Followed, topic: str) -> None:
        self._settings = settings
        self._followed = followed
        self._topic = topic
        self._positions = SinkPositions(settings.state.database)
        self._has_topic = False
        self.stream = followed.stream
        self.name = sink_name(followed.table, topic)
        self.lease_name = sink_lease(self.name)
        self.follows = followed.query
        self.reads, self.writes = [followed.table], [f"kafka:{topic}"]

    @classmethod
    def in_scope(cls, scope: Scope) -> "Iterable[TopicSink]":
        """Yield a sink for each topic of dead letters, silver and products."""
        for stream, topic in scope.dead_letter_topics.items():
            yield cls(scope.settings, dead_letters_followed(stream), topic)
        for stream, topic in scope.silver_topics.items():
            yield cls(scope.settings, silver_followed(scope.contracts[stream]), topic)
        for product in scope.products:
            for sink in product.sinks:
                if sink.kind is SinkKind.KAFKA:
                    yield cls(scope.settings, gold_followed(product, scope.contracts[product.stream]), sink.topic)

    def next(self, spark: SparkSession) -> _Work | None:
        """Find what the table has committed since the position."""
        table = open_table(spark, self._followed.table, self._followed.query)
        newest = table.newest()
        if newest is None:
            return None
        position = self._positions.get(self.name)
        since = self._since(position, table, newest)
        # Brokers are asked at the start of a run, since the topic may have been deleted, and then only for new rows.
        if self._has_topic and _has_all(since, newest):
            return None
        topic_id = ready_topic(self._settings.kafka, TopicSpec.of(self._topic, self._settings.topics))
        self._has_topic = True
        if position and position.topic_id != topic_id:
            log.warning("the topic was created again: sending the whole table", table=table.name, topic=self._topic)
            since = None
        if _has_all(since, newest):
            return None
        return _Work(table, position, since, newest, topic_id)

    def compute(self, spark: SparkSession, work: _Work) -> Commits:
        """Send the rows; yield the record of the new position."""
        change = self._followed.changes(spark, self._settings, work.since, work.newest)
        sent = send_rows(change.messages, self._settings.kafka, self._topic, may_cut=self._followed.may_cut)
        reached = SinkPosition(work.table.table_id(), work.topic_id, change.committed.as_text())
        yield lambda: self._record(reached, work.position)
        numbers = f"{work.since.next_number if work.since else 0} to {change.committed.marker.micro_batch_id}"
        return {"table": work.table.name, "topic": self._topic, "micro_batches": numbers, "messages": sent}

    def _record(self, reached: SinkPosition, before: SinkPosition | None) -> None:
        self._positions.record(self.name, self._followed.table, reached, before)

    def _since(self, position: SinkPosition | None, table: OpenTable, newest: Committed) -> Committed | None:
        """Return the marker up to which the topic has the table; None to send the whole table."""
        if position is None:
            return None
        if position.table_id != table.table_id():
            log.warning("the table was replaced: sending the whole table", table=table.name, topic=self._topic)
            return None
        since = Committed.parse(position.marker)
        hint = (
            "Restore the newer copy of the catalog. Or run `consumer resend "
            f"{table.name}`: then the topic gets all rows again, and keeps those that the table lost."
        )
        if since.next_number > newest.next_number:
            raise LakeproofError(
                f"The topic {self._topic} has {table.name} up to micro-batch {since.next_number - 1}, but the table "
                f"only has it up to {newest.next_number - 1}: it was restored from an older copy.",
                hint,
            )
        try:
            table.check_has(since)
        except MarkerLostError as error:
            raise LakeproofError(
                f"The topic {self._topic} has rows that {table.name} has no longer: {error.message}", hint
            ) from error
        return since


def _has_all(since: Committed | None, newest: Committed) -> bool:
    """Return whether the topic has all rows of the table."""
    return since is not None and since.next_number == newest.next_number


def send_rows(messages: DataFrame, kafka: KafkaSettings, topic: str, *, may_cut: bool) -> int:
    """Send messages in tasks; return their number."""
    return sum(write_in_tasks(messages, lambda batches: _send(batches, kafka, topic, may_cut=may_cut)))


def _send(batches: Iterator[pa.RecordBatch], kafka: KafkaSettings, topic: str, *, may_cut: bool) -> int:
    sent, sending = 0, None
    for batch in batches:
        sending = sending or Sending(kafka, topic)
        try:
            sent += sending.send(_outgoing(batch)).acknowledged
        except SendingError as error:
            if not may_cut:
                raise
            sent, sending = sent + _send_cut(list(_outgoing(batch)), error, kafka, topic), None
    return sent


def _send_cut(messages: Sequence[Outgoing], error: SendingError, kafka: KafkaSettings, topic: str) -> int:
    """Send messages of which one was refused as too large, and shorten it: only brokers know the compressed size."""
    if not isinstance(error.cause, TooLargeError):
        raise error
    parts: list[Sequence[Outgoing]]
    if len(messages) > 1:
        half = len(messages) // 2
        parts = [messages[:half], messages[half:]]
    elif shorter := shortened(messages[0]):
        parts = [[shorter]]
    else:
        raise error
    sent = 0
    for part in parts:
        try:
            sent += Sending(kafka, topic).send(part).acknowledged
        except SendingError as refused:
            sent += _send_cut(part, refused, kafka, topic)
    return sent


def _outgoing(batch: pa.RecordBatch) -> Iterator[Outgoing]:
    keys, values, headers = (batch.column(name).to_pylist() for name in ("key", "value", "headers"))
    for key, value, pairs in zip(keys, values, headers, strict=True):
        yield Outgoing(value, key, [(pair["key"], pair["value"]) for pair in pairs or ()])
