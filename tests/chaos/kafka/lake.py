"""A lake that is filled from a topic; its batches are messages."""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from pyiceberg.exceptions import NoSuchTableError
from tests.chaos.environment import ROOT
from tests.chaos.lake import PRODUCT, STREAM, TABLES, Count, Lake
from tests.chaos.processes import wait_until
from tests.messages import messages, received
from tests.servers import KafkaServer

from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.kafka.offsets import Offsets, source_name
from lakeproof.settings import S3Settings
from lakeproof.tables.names import POSITION, SOURCE, gold_table, silver_tables
from producer.batches import Batch

PARTITIONS = 2
PATIENCE_SECONDS = 15.0
"""How long a consumer waits for the brokers."""

_SEND_SECONDS = 120.0
_OFFSETS = 4


class TopicLake(Lake):
    """See :class:`tests.chaos.lake.Lake`.

    Parameters
    ----------
    folder, bucket, s3, seed, others
        As in any lake.
    broker
        Broker of the topics.
    sinks
        Whether silver, dead letters and gold are sent to topics.
    """

    run_arguments = ("--data-source", "kafka")

    def __init__(
        self,
        folder: Path,
        bucket: str | None,
        s3: S3Settings,
        seed: int,
        others: Mapping[str, str] | None = None,
        *,
        broker: KafkaServer,
        sinks: bool = False,
    ) -> None:
        self._broker = broker
        self.topic = broker.new_topic(PARTITIONS)
        self.has_sinks = sinks
        self._own = {
            "LAKE_KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "LAKE_KAFKA_TOPIC": self.topic,
            "LAKE_KAFKA_TIMEOUT_SECONDS": str(PATIENCE_SECONDS),
        }
        super().__init__(folder, bucket, s3, seed, {**(others or {}), **self._own})
        self._own["LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH"] = str(_OFFSETS)
        if sinks:
            self._own |= {
                "LAKE_SILVER_TOPIC": self.sink_of(silver_tables(STREAM).kept),
                "LAKE_DEAD_LETTER_TOPIC": self.sink_of(TABLES.dead_letters),
                "LAKE_GOLD": str(self._gold_with_sink()),
            }
        # Each message is acknowledged once, with a known offset, even if the broker dies.
        options = {"enable.idempotence": True, "message.timeout.ms": int(_SEND_SECONDS * 1000), "log_level": 0}
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **options})
        self._partitions = PARTITIONS

    def environment(self, s3: S3Settings) -> dict[str, str]:
        """Return the environment of a program that uses the lake."""
        return super().environment(s3) | self._own

    def sink_of(self, table: str) -> str:
        """Return the topic that a table is sent to."""
        return f"{self.topic}.{table}"

    def add_partition(self) -> None:
        """Add a partition to the topic, which also gets messages from now on."""
        self._partitions += 1
        self._broker.add_partitions(self.topic, self._partitions)
        # The brokers announce the partition a little later, and the producer refuses an unknown partition.
        if not wait_until(lambda: len(self._known()) == self._partitions, _SEND_SECONDS, every=0.1):
            raise OSError(f"the brokers do not tell of partition {self._partitions - 1} of {self.topic}")

    def _known(self) -> Collection[int]:
        return self._producer.list_topics(self.topic, _SEND_SECONDS).topics[self.topic].partitions

    def accounted(self) -> int:
        """Return the number of offsets in the ledger."""
        try:
            end = self.marker(TABLES.ledger, bronze_query(STREAM)).get("end")
        except NoSuchTableError:
            return 0
        return sum(offset for _, offset in Offsets.parse(end).entries) if end else 0

    def count(self) -> Count:
        """Compare the tables with the sent messages, and the sent messages with the topic.

        Raises
        ------
        OSError
            The messages of the topic are not the sent ones.
        """
        offsets = {partition: messages(self._broker, self.topic, partition) for partition in range(self._partitions)}
        in_topic = [
            source_name(self.topic, partition, offset) for partition in offsets for offset in offsets[partition]
        ]
        if sorted(in_topic) != sorted(self.files):
            raise OSError(f"the topic has {len(in_topic)} messages, but {len(self.files)} were sent")
        return super().count()

    def sent_on(self, table: str) -> list[Message]:
        """Return the messages of a table's topic."""
        return received(self._broker, self.sink_of(table))

    def rows_of(self, table: str) -> Counter[tuple[str, int]]:
        """Return the origins of the rows of silver or of the dead letters."""
        rows = open_catalog(self.settings).load_table(table).scan(selected_fields=(SOURCE, POSITION)).to_arrow()
        return Counter(zip(rows[SOURCE].to_pylist(), rows[POSITION].to_pylist(), strict=True))

    def windows(self) -> dict[tuple[str, datetime], int]:
        """Return the windows of gold, with the number of events in each."""
        rows = open_catalog(self.settings).load_table(gold_table(PRODUCT)).scan().to_arrow().to_pylist()
        return {(row["user_id"], row["window_start"].astimezone(UTC)): row["event_count"] for row in rows}

    def _put(self, batch: Batch) -> str:
        sent: list[tuple[KafkaError | None, Message]] = []

        def note(error: KafkaError | None, message: Message) -> None:
            sent.append((error, message))

        own: dict[str, Any] = {"key": batch.name.encode(), "headers": [("batch", b"\x00\xff")], "on_delivery": note}
        self._producer.produce(self.topic, batch.data, partition=len(self.files) % self._partitions, **own)
        self._producer.flush(_SEND_SECONDS)
        if not sent or sent[0][0]:
            raise OSError(f"a message was not acknowledged: {sent}")
        message = sent[0][1]
        return source_name(self.topic, message.partition() or 0, message.offset() or 0)

    def _has_all(self) -> bool:
        return True  # offsets are counted, not rows of the ledger

    def _gold_with_sink(self) -> Path:
        folder = self.folder / "gold"
        folder.mkdir()
        text = (ROOT / "gold" / f"{PRODUCT}.yaml").read_text()
        sinks = json.dumps(["table", {"kafka": self.sink_of(gold_table(PRODUCT))}])
        (folder / f"{PRODUCT}.yaml").write_text(f"{text}sinks: {sinks}\n")
        return folder
