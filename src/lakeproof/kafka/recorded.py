"""The topic of a stream and its first offsets, recorded in the ledger."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeproof.errors import LakeproofError, UsageError
from lakeproof.kafka.offsets import Offsets
from lakeproof.tables.names import KAFKA_TOPIC, LANDING_ROOT, stream_tables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from lakeproof.settings import Settings


@dataclass(frozen=True)
class Recorded:
    """The topic that a ledger records."""

    topic_id: str  # assigned by the brokers when the topic was created
    start: Offsets  # first offsets of the stream

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.start.topic

    def check_id(self, topic_id: str) -> None:
        """Check that the topic was not deleted and created again."""
        if topic_id != self.topic_id:
            raise LakeproofError(
                f"The topic {self.topic} was deleted and created again: its offsets begin again, and the tables have "
                "rows with the same ones.",
                "Read it as a new stream: copy the contract under another name. Or restore the topic.",
            )


def recorded_topic(ledger: Mapping[str, str]) -> Recorded | None:
    """Read the topic from a ledger's properties; None if the stream does not come from Kafka."""
    text = ledger.get(KAFKA_TOPIC)
    if text is None:
        return None
    found = json.loads(text)
    return Recorded(found["topic_id"], Offsets.parse(found["start"]))


def with_recorded_topic(settings: "Settings", ledger: Mapping[str, str]) -> "Settings":
    """Return settings with the topic of a ledger, which only the first command may have named."""
    recorded = recorded_topic(ledger)
    if recorded is None:
        return settings
    kafka = settings.kafka.model_copy(update={"topic": recorded.topic})
    return settings.model_copy(update={"kafka": kafka})


def record_topic(catalog: "Catalog", stream: str, recorded: Recorded) -> None:
    """Record the topic of a stream."""
    text = json.dumps({"topic_id": recorded.topic_id, "start": str(recorded.start)})
    with catalog.load_table(stream_tables(stream).ledger).transaction() as transaction:
        transaction.set_properties({KAFKA_TOPIC: text})


def check_comes_from(stream: str, ledger: Mapping[str, str], topic: str | None) -> None:
    """Check that a stream is read from the topic, or the files, that filled its tables."""
    found = recorded_topic(ledger)
    if found and topic is None:
        raise UsageError(
            f"The tables of {stream} were filled from the topic {found.topic}, not from files.",
            f"Use --data-source kafka --topic {found.topic}, or read the files as a stream of another name.",
        )
    if topic and not found and LANDING_ROOT in ledger:
        raise UsageError(
            f"The tables of {stream} were filled from files in {ledger[LANDING_ROOT]}, not from Kafka.",
            "Leave out --data-source kafka, or read the topic as a stream of another name.",
        )
    if topic and found and found.topic != topic:
        raise UsageError(
            f"The tables of {stream} were filled from the topic {found.topic}, not from {topic}.",
            f"Use --topic {found.topic}, or read {topic} as a stream of another name.",
        )
