"""Dead letters that are too large for their topic are sent without their bytes."""

import os
from typing import Any

import pyarrow as pa
import pytest
from tests.messages import received
from tests.servers import KafkaServer

from consumer.layers.sinks.messages import shortened
from consumer.layers.sinks.topic import _send
from lakeproof.errors import LakeproofError
from lakeproof.kafka.sending import Outgoing
from lakeproof.settings import settings_of

LIMIT = 20_000


def letter(number: int, key: bytes | None, value: bytes, *own: tuple[str, bytes]) -> dict[str, Any]:
    names = {"id": b"%d" % number, "source": b"s", "position": b"0", "reasons": b"[]"}
    headers = [*own, *((f"lakeproof-{name}", text) for name, text in names.items())]
    return {"key": key, "value": value, "headers": [{"key": name, "value": text} for name, text in headers]}


@pytest.mark.all
def test_a_dead_letter_that_is_too_large_for_the_topic_is_sent_without_its_bytes(kafka: KafkaServer) -> None:
    settings = settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}).kafka
    topic, large = kafka.new_topic(max_message_bytes=LIMIT), os.urandom(2 * LIMIT)
    letters = [letter(number, b"k", b"small %d" % number) for number in range(8)]
    letters[2] = letter(2, b"k", b"x" * 3 * LIMIT)  # small once it is compressed
    letters[4] = letter(4, b"k", large, ("own", b"1"))
    letters[5] = letter(5, large, large, ("own", large))
    batch = pa.RecordBatch.from_pylist(letters)
    assert _send(iter([batch, batch.slice(0, 1)]), settings, topic, may_cut=True) == 9
    found = {}
    for message in received(kafka, topic):
        headers = dict(message.headers() or [])
        found[int(headers.pop("lakeproof-id"))] = (message.key(), message.value(), headers)  # type: ignore[arg-type]
    assert {number: value for number, (_, value, _) in found.items()} == {
        number: b"" if number in (4, 5) else each["value"] for number, each in enumerate(letters)
    }
    source = {"lakeproof-source": b"s", "lakeproof-position": b"0"}
    assert found[4][2] == source | {"own": b"1", "lakeproof-reasons": b"[]", "lakeproof-cut": b"value"}
    assert (found[5][0], found[5][2]) == (None, source | {"lakeproof-cut": b"value, key, headers"})
    with pytest.raises(LakeproofError, match="larger than Kafka accepts"):  # a row of silver or gold
        _send(iter([batch]), settings, topic, may_cut=False)


def test_what_identifies_a_dead_letter_is_kept() -> None:
    message: Outgoing | None = Outgoing(b"v", b"k", [("own", b"1"), ("lakeproof-id", b"1"), ("lakeproof-reasons", b"")])
    shorter = []
    while message := shortened(message):
        shorter.append(message)
    assert [(each.value, each.key, [name for name, _ in each.headers]) for each in shorter] == [
        (b"", b"k", ["own", "lakeproof-id", "lakeproof-reasons", "lakeproof-cut"]),
        (b"", None, ["lakeproof-id", "lakeproof-cut"]),
    ]
