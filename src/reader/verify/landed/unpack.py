"""Unpack gzip up to a limit, for the recount; independent of the consumer's code, which must agree."""

import io
import zlib
from collections.abc import Iterator

_AS_GZIP = 16 + zlib.MAX_WBITS
_LEAST, _MOST = 1 << 10, 1 << 16


class DamagedError(Exception):
    """The content is not gzip, or is damaged."""


class CutError(DamagedError):
    """The content is truncated gzip."""


def unpack(content: bytes, most: int) -> bytes | None:
    """Unpack a file of gzip members, which may have zero padding; None if that is more than `most` bytes."""
    whole = io.BytesIO()
    for is_whole in _members(content, whole, most):
        if not is_whole:
            return None
    return whole.getvalue()


def unpack_beginning(content: bytes, most: int) -> bytes | None:
    """Return the readable beginning of a damaged file: its complete members, and the start of a truncated one.

    Returns None if the file is not damaged, or has more than `most` bytes unpacked.
    """
    whole = io.BytesIO()
    sound = 0
    try:
        for is_whole in _members(content, whole, most):
            if not is_whole:
                return None
            sound = whole.tell()
    except CutError:
        return whole.getvalue()
    except DamagedError:
        return whole.getvalue()[:sound]
    return None


def _members(content: bytes, whole: io.BytesIO, most: int) -> Iterator[bool]:
    """Unpack member after member; yield whether the member is complete, or False beyond `most` bytes."""
    rest = memoryview(content)
    while rest:
        behind = _member(rest, whole, most)
        yield behind is not None
        rest = rest[behind:]
        length = _LEAST
        while rest and not rest[0]:
            head = bytes(rest[:length])
            rest = rest[len(head) - len(head.lstrip(b"\0")) :]
            length = min(length * 4, _MOST)


def _member(rest: memoryview, whole: io.BytesIO, most: int) -> int | None:
    """Add the content of the first member of `rest`; return its end, or None if that exceeds the limit."""
    stream = zlib.decompressobj(_AS_GZIP)
    begun = whole.tell()
    taken, length = 0, _LEAST
    while not stream.eof:
        if taken == len(rest):
            raise CutError("cut short")
        part = rest[taken : taken + length]
        taken += len(part)
        length = min(length * 4, _MOST)
        try:
            # The content of the part, or one byte more than the limit.
            whole.write(stream.decompress(part, most - whole.tell() + 1))
        except zlib.error as error:
            if _is_too_much(rest, taken - len(part), begun, most):
                return None
            raise DamagedError(str(error)) from error
        if whole.tell() > most:
            return None
    return taken - len(stream.unused_data)


def _is_too_much(rest: memoryview, sound: int, begun: int, most: int) -> bool:
    """Return whether a damaged member exceeds the limit before the damage, which is after its first `sound` bytes.

    zlib does not return the content before the damage, so the member is read again, byte by byte near the damage.
    """
    stream = zlib.decompressobj(_AS_GZIP)
    size = begun
    parts = [(at, min(at + _MOST, sound)) for at in range(0, sound, _MOST)]
    parts += [(at, at + 1) for at in range(sound, min(sound + _MOST, len(rest)))]
    for at, behind in parts:
        try:
            size += len(stream.decompress(rest[at:behind], most - size + 1))
        except zlib.error:
            return False
        if size > most:
            return True
    return False
