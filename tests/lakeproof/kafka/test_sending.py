"""Sending messages to a topic."""

import pytest
from tests.servers import free_port

from lakeproof.kafka.sending import Outgoing, Sending, SendingError, TooLargeError
from lakeproof.settings import settings_of


def test_a_message_that_does_not_fit_into_the_queue_is_too_large() -> None:
    nobody = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}", "LAKE_KAFKA_TIMEOUT_SECONDS": 1}
    with pytest.raises(SendingError) as caught:
        Sending(settings_of(nobody).kafka, "dead").send([Outgoing(b"x" * (65 << 20))])
    assert isinstance(caught.value.cause, TooLargeError)
