"""Bodies: unpacking restores packed data, reads no more than the limits allow, and slow bodies end."""

import asyncio
import gzip
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from collector.answers import Refusal
from collector.body import Disconnected, read_body, unpack
from collector.budget import Budget

LIMIT = 1000
PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}


def unpacked(body: bytes, encoding: str, limit: int = LIMIT) -> bytes | int:
    try:
        with Budget(10_000_000).share() as share:
            return unpack(body, encoding, limit, share)
    except Refusal as refused:
        return refused.status


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=4), st.sampled_from(list(PACK)))
def test_what_was_packed_is_unpacked_up_to_the_limit(parts: list[bytes], encoding: str) -> None:
    body = b"".join(map(PACK[encoding], parts))
    plain = b"".join(parts)
    assert unpacked(body, encoding) == (plain if len(plain) <= LIMIT else HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


@given(st.binary(min_size=1, max_size=200), st.sampled_from(list(PACK)), st.data())
def test_a_part_of_a_packed_body_is_refused(plain: bytes, encoding: str, data: Any) -> None:
    body = PACK[encoding](plain)
    end = data.draw(st.integers(0, len(body) - 1))
    assert unpacked(body[:end], encoding) == HTTPStatus.BAD_REQUEST


@given(st.binary(max_size=300), st.sampled_from(list(PACK)))
def test_any_bytes_are_unpacked_or_refused(body: bytes, encoding: str) -> None:
    assert unpacked(body, encoding) in (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


def test_a_frame_that_needs_a_large_window_is_refused() -> None:
    options = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    body = compressor.compress(b"x" * 100) + compressor.flush()
    assert unpacked(body, "zstd") == HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize("encoding", PACK)
def test_many_members_are_refused_soon(encoding: str) -> None:
    began = time.process_time()
    assert unpacked(PACK[encoding](b"") * 50_000, encoding) == HTTPStatus.BAD_REQUEST
    assert time.process_time() - began < 1


def test_the_memory_of_a_post_is_given_back() -> None:
    budget = Budget(100)
    with budget.share() as share:
        share.take(60)
        with budget.share() as other, pytest.raises(Refusal) as refused:
            other.take(41)
        assert refused.value.status == HTTPStatus.TOO_MANY_REQUESTS
        assert dict(refused.value.headers)[b"retry-after"] == b"1"
        share.take(40)
    assert budget.used == 0


def read(*messages: dict[str, Any], seconds: float = 5) -> bytes | int | str:
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.sleep(60)
        return waiting.pop(0)

    budget = Budget(10_000)
    try:
        with budget.share() as share:
            return asyncio.run(read_body(receive, LIMIT, seconds, share))
    except Refusal as refused:
        return refused.status
    except Disconnected:
        return "disconnected"
    finally:
        assert budget.used == 0


def test_a_body_may_come_in_parts_and_ends_at_the_limit() -> None:
    part = {"type": "http.request", "body": b"x" * 500, "more_body": True}
    assert read(part, part | {"more_body": False}) == b"x" * 1000
    assert read(part, part, part) == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert read(part, {"type": "http.disconnect"}) == "disconnected"
    assert read(part, seconds=0.05) == HTTPStatus.REQUEST_TIMEOUT
