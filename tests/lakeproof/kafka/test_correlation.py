"""Correlation IDs follow their definition in the docs, so every tool can compute them."""

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from lakeproof.kafka.correlation import correlation_id

values = st.none() | st.sampled_from([b"", b"a", b"b", b"1", b"event", b"post"])
events = st.tuples(values, values, values, st.sampled_from([b"1", b"2"]))


def computed(text: str) -> str:
    """Return the first 32 digits, computed by another program."""
    return subprocess.run(["sha256sum"], input=text.encode(), capture_output=True, check=True).stdout.decode()[:32]


def test_ids_are_as_defined() -> None:
    assert correlation_id(b"shop", b"k", b"7", b"42") == computed("post\nshop\nk\n7")
    assert correlation_id(None, b"k", b"7", b"42") == computed("post\n\nk\n7")
    assert correlation_id(b"shop", None, None, b"42") == computed("event\nshop\n42")
    assert correlation_id(None, None, None, b"42") == computed("event\n\n42")


@given(events, events)
def test_ids_are_equal_for_copies_of_an_event_only(
    one: tuple[bytes | None, bytes | None, bytes | None, bytes],
    other: tuple[bytes | None, bytes | None, bytes | None, bytes],
) -> None:
    def identity(
        client: bytes | None, key: bytes | None, index: bytes | None, number: bytes
    ) -> tuple[bytes | None, ...]:
        return (client or b"", None, None, number) if key is None or index is None else (client or b"", key, index)

    same = identity(*one) == identity(*other)
    assert (correlation_id(*one) == correlation_id(*other)) is same
