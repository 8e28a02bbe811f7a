"""Read and unpack the body of a post within limits of size and time."""

import asyncio
import zlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from backports import zstd
from starlette.types import Receive

from collector.answers import Refusal, refusal
from collector.budget import Share

_GZIP = 31  # zlib's window bits for gzip
_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
"""Limit of 8 MiB, which every zstd decoder supports: the frame determines how much memory its decoder needs."""
_MEMBERS = 16  # maximum number of members of a compressed body; each one copies the rest of the body


class Disconnected(Exception):  # noqa: N818 - no error of the program
    """The client has closed the connection."""


class _Decoder(Protocol):
    """Common interface of zlib and zstd."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": lambda: zlib.decompressobj(_GZIP),
    "zstd": lambda: zstd.ZstdDecompressor(None, _WINDOW),
}


async def read_body(receive: Receive, limit: int, seconds: float, share: Share) -> bytes:
    """Read the raw body; raise Refusal if it is too large (413), too slow (408) or memory is short (413, 429)."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise too_large(limit, "body")
                share.take(len(part))
                parts.append(part)
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        detail = f"Expected the whole body within {seconds:g} s, got {size} bytes. Send it faster, or in smaller posts."
        raise Refusal(HTTPStatus.REQUEST_TIMEOUT, detail, close=True) from None


def unpack(body: bytes, encoding: str, limit: int, share: Share) -> bytes:
    """Decode the body; raise Refusal if it is invalid (400), too large (413) or unsupported (415)."""
    if encoding in ("", "identity"):
        if len(body) > limit:
            raise too_large(limit, "body, unpacked,")
        return body
    if encoding not in _DECODERS:
        detail = f"expected the Content-Encoding gzip, zstd or identity, got {encoding[:40]!r}"
        raise refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)
    parts: list[bytes] = []
    size, rest = 0, body
    while rest and len(parts) < _MEMBERS:
        decoder = _DECODERS[encoding]()
        try:
            part = decoder.decompress(rest, limit + 1 - size)
        except (zlib.error, zstd.ZstdError) as error:
            raise refusal(HTTPStatus.BAD_REQUEST, f"cannot unpack the body as {encoding}: {error}") from None
        size += len(part)
        if size > limit:
            raise too_large(limit, "body, unpacked,")
        if not decoder.eof:
            raise refusal(HTTPStatus.BAD_REQUEST, f"cannot unpack the body as {encoding}: it is truncated")
        share.take(len(part))
        parts.append(part)
        rest = decoder.unused_data
    if rest or not parts:
        what = f"more than {_MEMBERS} members" if rest else "it is empty"
        raise refusal(HTTPStatus.BAD_REQUEST, f"cannot unpack the body as {encoding}: {what}")
    return b"".join(parts)


def too_large(limit: int, what: str) -> Refusal:
    """Return the refusal of a body with more than `limit` bytes."""
    return refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected a {what} of at most {limit} bytes; send smaller posts"
    )
