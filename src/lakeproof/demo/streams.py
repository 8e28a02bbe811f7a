"""The arguments of the demo's producer and consumer, for each stream."""

from dataclasses import dataclass
from enum import StrEnum


class DemoStream(StrEnum):
    """A stream that the demo can fill."""

    EVENTS = "events"
    SENSORS = "sensors"
    CLICKSTREAM = "clickstream"


@dataclass(frozen=True)
class Arguments:
    """Arguments of the programs, as a shell splits them."""

    producer: str
    consumer: str


_PACE = "--batch-size 100 --sleep-between-batches-seconds 1"
_CLICKSTREAM = Arguments(
    f"clickstream --data-sink http {_PACE} --invalid-schema-chance .05 --extra-field-chance .05 --duplicate-chance .05",
    "clickstream --maintain --data-source kafka --silver-topic acme.clickstream.latest.events "
    "--dead-letter-topic acme.clickstream.dead.events",
)
_FAULTS = {
    DemoStream.EVENTS: "--corruption-chance .05 --invalid-schema-chance .05 --extra-field-chance .05 "
    "--duplicate-chance .05",
    DemoStream.SENSORS: "--devices 20 --anomaly-chance .02 --duplicate-chance .02",
}


def arguments(stream: DemoStream, storage: str) -> Arguments:
    """Return the arguments for a stream whose batches are in `storage`: local, s3 or kafka."""
    if stream is DemoStream.CLICKSTREAM:  # through the collector
        return _CLICKSTREAM
    return Arguments(
        f"{stream} --data-sink {storage} {_PACE} {_FAULTS[stream]}", f"{stream} --maintain --data-source {storage}"
    )
