"""The sender handles the reports of Kafka's client."""

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message
from tests.servers import free_port

from collector import sender as sender_module
from collector.answers import Receipt
from collector.events import Events
from collector.sender import Sender, open_sender
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import settings_of

SETTINGS = settings_of({"LAKE_COLLECTOR_DEADLINE_SECONDS": "1", "LAKE_COLLECTOR_TOPIC": "events"}).collector
NOBODY = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}


def with_sender(use: Callable[[Sender], None]) -> list[LakeproofError]:
    """Use a sender whose brokers do not respond; return the failures that make it useless."""
    failures: list[LakeproofError] = []

    async def main() -> None:
        sender = Sender(NOBODY, SETTINGS, failures.append)
        use(sender)
        sender.close()

    asyncio.run(main())
    return failures


def test_a_fatal_error_makes_it_useless_and_others_do_not() -> None:
    def use(sender: Sender) -> None:
        sender._on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "all brokers are down"))
        sender._on_error(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "out of order", fatal=True))

    (failure,) = with_sender(use)
    assert (failure.exit_code, failure.message) == (3, "The Kafka producer failed: out of order.")


def test_an_error_that_ends_the_probes_makes_it_useless(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("retention.ms")  # of a broker that does not have such a setting

    monkeypatch.setattr(sender_module, "create_topics", fail)
    failures: list[Exception] = []

    async def main() -> None:
        async with open_sender(NOBODY, settings_of({}), failures.append):
            deadline = asyncio.get_running_loop().time() + 60
            while not failures and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert [type(each) for each in failures] == [KeyError]


@pytest.mark.parametrize(
    ("error", "offset", "expected"),
    [
        (None, 7, Receipt("events", 2, 7)),
        (None, -1001, "acknowledged without an offset"),
        (KafkaError(KafkaError._MSG_TIMED_OUT, "timed out"), 7, "timed out"),
    ],
)
def test_only_an_acknowledgement_with_an_offset_is_a_receipt(
    error: KafkaError | None, offset: int, expected: Receipt | str
) -> None:
    found: list[Receipt | str] = []

    async def main() -> None:
        sender = Sender(NOBODY, SETTINGS, lambda failure: None)
        sending = asyncio.create_task(sender.send(Events([b"{}"], [b"1"]), [None]))
        await asyncio.sleep(0)
        (post,) = sender._posts
        post.delivered(0, error, Message(topic="events", partition=2, offset=offset))
        found.extend(await sending)
        assert sender._posts == {}
        sender.close()

    asyncio.run(main())
    assert found == [expected]


def test_a_message_that_the_client_refuses_fails_alone() -> None:
    async def main() -> list[Receipt | str]:
        sender = Sender(NOBODY, SETTINGS, lambda failure: None)
        outcomes = await sender.send(Events([b"{}", b"x" * 2_000_000], [b"1", b"2"]), [None, None])
        sender.close()
        return outcomes

    outcomes = asyncio.run(main())
    assert "timed out" in str(outcomes[0])
    assert "too large" in str(outcomes[1])


def test_settings_that_the_client_does_not_accept_are_told() -> None:
    async def main() -> None:
        Sender(NOBODY | {"security.protocol": "SSL", "ssl.ca.location": "/missing"}, SETTINGS, lambda failure: None)

    with pytest.raises(UsageError, match="Kafka's client does not accept the settings"):
        asyncio.run(main())
