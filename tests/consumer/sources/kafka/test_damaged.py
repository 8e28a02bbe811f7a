"""Messages that are damaged at the broker: none is skipped, and the error says where it is."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from tests.consumer.lake import rows
from tests.consumer.sources.kafka.test_read import settings as settings_for
from tests.lakes import changed
from tests.messages import event, send
from tests.selection import first_by_default
from tests.servers import KafkaServer

from consumer.app.repair import give_up_offsets, lost_offsets
from consumer.sources.envelope import Messages
from consumer.sources.kafka import read
from consumer.sources.kafka.read import OffsetRange, envelopes
from lakeproof.errors import UnavailableError
from lakeproof.kafka.offsets import source_name
from lakeproof.settings import Limits, Settings

Take = Callable[..., None]


def damage(kafka: KafkaServer, topic: str, number: int) -> None:
    """Change the last bytes of the value in a batch of the only segment, as a disk does."""
    (segment,) = (kafka.folder / "data" / f"{topic}-0").glob("*.log")
    batches = _batches(segment)
    with segment.open("r+b") as file:
        file.seek(batches[number][1] - 20)
        file.write(b"\x00\x01\x02")


def _batches(segment: Path) -> list[tuple[int, int]]:
    """Return start and end of each batch: an offset, the length of the rest, the rest."""
    content, found, at = segment.read_bytes(), [], 0
    while at < len(content):
        end = at + 12 + int(struct.unpack_from(">i", content, at + 8)[0])
        found.append((at, end))
        at = end
    return found


@pytest.mark.parametrize("compression", first_by_default(["none", "gzip"]))
def test_a_damaged_message_is_named(kafka: KafkaServer, compression: str) -> None:
    topic = kafka.new_topic()
    for number in range(5):
        send(kafka, topic, [event(number)], compression_type=compression)
    damage(kafka, topic, 2)
    own = settings_for(kafka.bootstrap_servers)
    told = rf"offset 2 of partition 0 of {topic}: .*CRC32C(?s:.*)docs/kafka.md#damaged-messages"
    with pytest.raises(UnavailableError, match=told):
        list(envelopes([OffsetRange(topic, 0, 0, 5, 0)], own, Limits()))
    (before,) = envelopes([OffsetRange(topic, 0, 0, 2, 0)], own, Limits())
    (after,) = envelopes([OffsetRange(topic, 0, 3, 5, 3)], own, Limits())
    assert isinstance(before, Messages)
    assert isinstance(after, Messages)
    assert (before.offsets, after.offsets) == ([0, 1], [3, 4])


class Found:
    """A message of Kafka's client, or an error in its place."""

    def __init__(self, offset: int | None, error: KafkaError | None = None) -> None:
        self._offset = offset
        self._error = error

    def error(self) -> KafkaError | None:
        return self._error

    def offset(self) -> int | None:
        return self._offset

    def value(self) -> bytes:
        return event(self._offset or 0)

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


def read_with(monkeypatch: pytest.MonkeyPatch, *found: Found) -> list[int]:
    """Return the offsets of four messages that a task reads, where the client has `found` at first."""
    left = [list(found)]

    class Client:
        def __init__(self, _: object) -> None:
            pass

        def assign(self, _: object) -> None:
            pass

        def consume(self, most: int, _: float) -> list[Found]:
            return left.pop() if left else [Found(3)]

        def close(self) -> None:
            pass

    monkeypatch.setattr(read, "Consumer", Client)
    own = settings_for("kafka:9092", seconds=1)
    read_again = envelopes([OffsetRange("t", 0, 0, 4, 0)], own, Limits())
    return [offset for each in read_again if isinstance(each, Messages) for offset in each.offsets]


@pytest.mark.parametrize(
    "code",
    [KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED, KafkaError.MSG_SIZE_TOO_LARGE],
)
def test_an_error_in_place_of_a_message_is_raised(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    wrong = Found(1, KafkaError(code, "failed CRC32C check"))
    with pytest.raises(UnavailableError, match="at offset 1 of partition 0 of t: failed CRC32C check") as caught:
        read_with(monkeypatch, Found(0), wrong, Found(2), Found(3))
    assert "docs/kafka.md#damaged-messages" in caught.value.hint


@pytest.mark.parametrize(
    "error",
    [
        Found(1, KafkaError(KafkaError._TRANSPORT, "Disconnected")),
        Found(1, KafkaError(KafkaError._ALL_BROKERS_DOWN)),
        Found(1, KafkaError(KafkaError.REQUEST_TIMED_OUT, "slow", retriable=True)),
        Found(None, KafkaError(KafkaError.INVALID_GROUP_ID, "FindCoordinator response error")),
    ],
    ids=lambda each: each.error().name(),
)
def test_errors_that_pass_are_waited_for(monkeypatch: pytest.MonkeyPatch, error: Found) -> None:
    assert read_with(monkeypatch, Found(0), error, Found(1), Found(2)) == [0, 1, 2, 3]


@pytest.mark.parametrize("code", [KafkaError._PARTITION_EOF, KafkaError._BAD_MSG])
def test_errors_after_the_range_end_it(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Offset 3 has no message: a marker of a transaction, for example."""
    assert read_with(monkeypatch, Found(0), Found(1), Found(2), Found(4, KafkaError(code))) == [0, 1, 2]


@pytest.mark.all
@pytest.mark.spark
def test_a_damaged_message_stops_the_stream_until_it_is_removed_and_given_up(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic()
    for number in range(5):
        send(kafka, topic, [event(number)])
    damage(kafka, topic, 2)
    names = [source_name(topic, 0, offset) for offset in range(5)]

    def units(table: str) -> list[str]:
        return sorted(row["_source"] for row in rows(lake_settings, f"{table}.events"))

    with pytest.raises(UnavailableError, match="offset 2 of partition 0"):
        take(topic)
    with pytest.raises(UnavailableError, match="offset 2 of partition 0"):
        take(topic, LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH=1)
    assert units("bronze") == names[:2]
    kafka.delete_records(topic, 0, 3)
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers)
    lost = lost_offsets(settings, "events")
    assert lost == [(0, 2, 3, 3)]
    give_up_offsets(settings, "events", lost)
    take(topic)
    assert units("bronze") == [*names[:2], *names[3:]]
    assert units("dead_letters") == [names[2]]
