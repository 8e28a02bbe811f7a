"""A batch over a past range of a stream's topic: messages from before the beginning of the stream, once.

It is a variant of the stream's own query: it uses the stream's lease, so that the two take turns, and the stream's
numbers and markers, so that all layers behind bronze process its rows.
"""

import structlog
from pyspark.sql import SparkSession

from consumer.queries.bronze import BronzeQuery
from consumer.queries.bulletin import Bulletin
from consumer.queries.following import follow
from consumer.queries.running import Paused, Running
from consumer.queries.trigger import Trigger
from consumer.scope import Period
from consumer.sources.kafka.source import KafkaSource
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.errors import PausedError, UsageError
from lakeproof.install.judges import judge_choice
from lakeproof.kafka.offsets import Range
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import QueryKind, Trip
from lakeproof.tables.names import stream_tables

log = structlog.get_logger()

_CHECKPOINT = QueryKind.PAST.value
"""Value in the ledger in place of the id of a checkpoint."""


class PastQuery(BronzeQuery):
    """The batch: messages of a stream's topic from a period."""

    pausing = QueryKind.PAST

    def __init__(self, settings: Settings, stream: str, period: Period) -> None:
        super().__init__(settings, stream, Trigger(available_now=True), "kafka")
        self._period = period

    def prepare(self) -> None:
        """Read the position of the tables; refuse a stream that has not been read from a topic yet."""
        ledger = stream_tables(self.stream).ledger
        catalog = open_catalog(self._settings)
        if not catalog.table_exists(ledger) or recorded_topic(catalog.load_table(ledger).properties) is None:
            raise UsageError(
                f"{self.stream} has not been read from a topic yet: a batch reads what comes before its beginning.",
                f"Run `consumer run {self.stream} --data-source kafka`, which begins at LAKE_KAFKA_STARTING_OFFSETS.",
            )
        super().prepare()

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Running:
        """Start the batch. It is finished once the whole range is in the ledger."""
        if self.paused:
            return Paused()
        source = self._topic_source
        wanted = source.between(self._period.since, self._period.until)
        self._say(source, wanted)

        def look(session: SparkSession) -> bool:
            held = None if self.paused else source.next_of_past(self._accounted(source), wanted)
            if held is None:
                return False
            try:
                self.take(session, held, _CHECKPOINT, 0)
            except PausedError as error:
                self.paused = error
                return False
            return True

        return follow(spark, self.name, look, self._trigger.seconds, bulletin)

    def _wants(self, trip: Trip) -> bool:
        source = self._topic_source
        return source.takes_of_past(trip.start, trip.end, source.between(self._period.since, self._period.until))

    @property
    def _topic_source(self) -> KafkaSource:
        source = self._prepared.source
        if not isinstance(source, KafkaSource):
            raise TypeError("Only a topic has a past.")
        return source

    def _accounted(self, source: KafkaSource) -> str | None:
        with catalog_errors():
            return self._standing(open_catalog(self._settings), source).accounted

    def _say(self, source: KafkaSource, wanted: list[Range]) -> None:
        """Log the size of the range, and what the batch leaves out."""
        known = source.known_of(self._accounted(source), wanted)
        log.info(
            "batch over the past",
            stream=self.stream,
            judge=str(judge_choice(self._settings.judge)),
            offsets=_size(wanted),
            in_the_tables=_size(known.accounted),
            left_to_the_stream=_size(known.pending),
            to_read=_size(known.left),
        )


def _size(ranges: list[Range]) -> int:
    return sum(end - first for _, first, end in ranges)
