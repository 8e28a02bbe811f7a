"""The queries from a topic to the topic of alerts: independent of all tables and of the other queries."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from consumer.iceberg.jvm import trigger_in_real_time
from consumer.layers.samples.alerts import other_alerts, plain_alerts, why_never_plain
from consumer.queries.application import Query
from consumer.queries.bulletin import Bulletin
from consumer.queries.failures import explained
from consumer.queries.running import SparkQueries
from consumer.queries.trigger import Trigger
from lakeproof.checkpoint import alerts_queries, checkpoint_folder
from lakeproof.contracts import Contract
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.gold.samples import AlertMode, Alerts, Samples
from lakeproof.kafka.client import client_properties, spark_options
from lakeproof.kafka.create import TopicSpec, create_topics
from lakeproof.kafka.topic import Topic
from lakeproof.settings import KafkaSettings, Settings
from lakeproof.state.lease import Lease, alerts_lease
from lakeproof.topics import milliseconds_of, starting_offsets

log = structlog.get_logger()

# A checkpoint takes a fraction of a second, during which alerts wait.
_CHECKPOINT_EVERY = "2 minutes"
_MICRO_BATCH_EVERY = "500 milliseconds"
_OTHERS_EVERY = "2 seconds"
_EARLIEST = -2  # the offset, as Spark writes it


class AlertsQuery(Query):
    """The alerts of a product of samples.

    Two queries of Spark read the topic: one takes plain messages, in real time if requested, and the other judges all
    others. Each has its own checkpoint, and after a crash repeats the alerts that it has sent since then.
    """

    spark_settings: Mapping[str, str] = {"spark.sql.redaction.options.regex": "(?i)url|jaas|password|keystore"}

    def __init__(self, settings: Settings, samples: Samples, contract: Contract, trigger: Trigger) -> None:
        if samples.alerts is None:
            raise RuntimeError("A product without alerts has no such query.")
        why = why_never_plain(contract)
        if why and samples.alerts.mode is AlertMode.REAL_TIME:
            raise UsageError(
                f"The alerts of {samples.name} cannot be sent in real time: {why}.",
                f"Set `mode: {AlertMode.MICRO_BATCH}` in gold/{samples.name}.yaml.",
            )
        self._settings = settings
        self._samples = samples
        self._contract = contract
        self._alerts: Alerts = samples.alerts
        self._trigger = trigger
        self._topic = settings.topic_of(samples.stream)
        self._running: Sequence[StreamingQuery] = ()
        self.name, self._others = alerts_queries(samples.name)
        self.lease_name = alerts_lease(samples.name)
        self.reads, self.writes = [f"kafka:{self._topic}"], [f"kafka:{samples.alerts.topic}"]

    @property
    def micro_batches(self) -> int:  # type: ignore[override]  # nobody sets it
        """Number of finished micro-batches of the topic, in real time one every two minutes."""
        done = [query.lastProgress for query in self._running]
        return sum(int(progress["batchId"]) + 1 for progress in done if progress)

    @property
    def slots(self) -> int:
        """Number of Spark cores in addition to those of other queries: one for each partition of the topic."""
        # In real time, the query holds its cores all the time; in micro-batches, it never waits for other queries.
        if self._trigger.available_now:
            return 0
        return len(Topic(self._settings.kafka, self._topic).identity()[1])

    def prepare(self) -> None:
        """Create the topic of alerts if it is missing."""
        asked = TopicSpec.of(self._alerts.topic, self._settings.topics)
        for found in create_topics(client_properties(self._settings.kafka), [asked]):
            log.info("topic differs", topic=found.topic, what=found.what, expected=found.expected, found=found.found)

    def resume(self, spark: SparkSession, held: Lease) -> None:
        """Do nothing: Spark's checkpoints record where to resume."""

    def start(self, spark: SparkSession, bulletin: Bulletin) -> SparkQueries:  # noqa: ARG002 - ended by SparkQueries.end
        """Start both queries."""
        samples, contract, limits = self._samples, self._contract, self._settings.limits
        messages = _messages(spark, self._settings.kafka, self._topic)
        plain = plain_alerts(messages, samples, contract, limits)
        others = other_alerts(messages, samples, contract, limits, self._settings.judge)
        every = None if self._alerts.mode is AlertMode.REAL_TIME else _MICRO_BATCH_EVERY
        self.check_cores(spark.sparkContext.defaultParallelism)
        self._running = [
            self._start(plain, self.name, every),
            self._start(others, self._others, _OTHERS_EVERY),
        ]
        log.info("started", query=self.name, topic=self._alerts.topic, mode=str(self._alerts.mode))
        return SparkQueries(self._running)

    def check_cores(self, cores: int) -> None:
        """Warn if a query in real time takes all cores: the other queries would wait, and Spark does not say so."""
        if self._alerts.mode is not AlertMode.REAL_TIME or self._trigger.available_now:
            return
        if (partitions := self.slots) >= cores:  # asks the broker
            log.warning("alerts in real time hold all cores", query=self.name, partitions=partitions, cores=cores)

    def _start(self, alerts: DataFrame, name: str, every: str | None) -> StreamingQuery:
        """Start a query that looks for messages at an interval; None for each message as it arrives."""
        writer = alerts.writeStream.queryName(name).format("kafka").options(**spark_options(self._settings.kafka))
        writer = writer.option("topic", self._alerts.topic).outputMode("update")
        writer = writer.option("checkpointLocation", checkpoint_folder(self._settings, name))
        if self._trigger.available_now:
            writer = writer.trigger(availableNow=True)
        elif every:
            writer = writer.trigger(processingTime=every)
        else:
            trigger_in_real_time(writer, alerts.sparkSession, _CHECKPOINT_EVERY)
        return writer.start()

    def explain(self, error: Exception) -> LakeproofError:
        """Return the reason for a failure."""
        try:
            Topic(self._settings.kafka, self._topic).identity()
        except LakeproofError as away:
            return away
        return explained(error, self._settings, self._samples.stream)


def _messages(spark: SparkSession, kafka: KafkaSettings, topic: str) -> DataFrame:
    """Return the messages of a topic, from the position where the first run of a stream begins."""
    options = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    # The query to bronze reports messages that retention has removed.
    options["failOnDataLoss"] = "false"
    start = starting_offsets(kafka.starting_offsets)
    if isinstance(start, str):
        options["startingOffsets"] = start
    elif isinstance(start, datetime):
        options |= {"startingTimestamp": str(milliseconds_of(start))}
        options["startingOffsetsByTimestampStrategy"] = "latest"
    else:
        partitions = Topic(kafka, topic).identity()[1]
        options["startingOffsets"] = json.dumps({topic: {str(each): start.get(each, _EARLIEST) for each in partitions}})
    return spark.readStream.format("kafka").options(**spark_options(kafka), **options).load()
