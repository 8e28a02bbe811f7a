"""Unpack gzip up to a limit: in time that grows with what goes in and what comes out, and in one copy."""

import io
import re
import zlib

_GZIP = 31  # zlib's number for gzip's format, checksums included
_STEP = 1 << 20
# A member's first slice is small, since what lies behind a short member is copied, and looked at again for the next.
_FIRST_SLICE = 1 << 9
_LAST_SLICE = 1 << 18
# No byte of gzip unpacks to more.
_MOST_OF_A_BYTE = 2_064
_ZEROS = re.compile(rb"\0*+")


class UnpackError(Exception):
    """It is not gzip, or damaged, or cut short."""


class CutShortError(UnpackError):
    """It ends inside a member."""


class TooLargeError(Exception):
    """It has more bytes than the limit."""


def unpack(packed: bytes, most: int) -> bytes:
    """Unpack all members of a gzip file, `most` bytes at most; zeros may follow each."""
    unpacked = io.BytesIO()
    position = 0
    while position < len(packed):
        behind = _unpack_member(packed, position, unpacked, most)
        position = _ZEROS.match(packed, behind).end()  # type: ignore[union-attr]  # if only nothing, it matches
    return unpacked.getvalue()  # no copy: it hands over its own buffer


def unpack_beginning(packed: bytes, most: int) -> tuple[bytes, UnpackError] | None:
    """Unpack what can be relied on of a gzip file that :func:`unpack` refuses; and why it ends there.

    That is its members up to the first one that is damaged, whose checksums are right, or all that comes out of a file
    that was cut short. What comes out of a damaged member is no use: zlib notices damage long after it begins to hand
    out wrong bytes. None if it is not damaged. A TooLargeError is raised as by :func:`unpack`.
    """
    unpacked = io.BytesIO()
    position = sound = 0
    while position < len(packed):
        try:
            behind = _unpack_member(packed, position, unpacked, most)
        except CutShortError as error:
            return unpacked.getvalue(), error
        except UnpackError as error:
            unpacked.truncate(sound)
            return unpacked.getvalue(), error
        sound = unpacked.tell()
        position = _ZEROS.match(packed, behind).end()  # type: ignore[union-attr]  # if only nothing, it matches
    return None


def _unpack_member(packed: bytes, position: int, unpacked: io.BytesIO, most: int) -> int:
    """Unpack the member at `position`; return the offset behind it."""
    member = zlib.decompressobj(_GZIP)
    size = _FIRST_SLICE
    while True:
        waiting = packed[position : position + size]
        if not waiting:
            raise CutShortError(f"file ends at byte {position} inside a gzip member")
        position += len(waiting)
        size = min(2 * size, _LAST_SLICE)
        room = most - unpacked.tell()
        before = (member.copy(), waiting, room) if room < len(waiting) * _MOST_OF_A_BYTE else None
        while True:
            # One byte more than there may be, and never further.
            room = min(_STEP, most + 1 - unpacked.tell())
            try:
                piece = member.decompress(waiting, room)
            except zlib.error as error:
                if before and _passes_limit(*before):
                    raise TooLargeError from None
                raise UnpackError(str(error)) from None
            unpacked.write(piece)
            if unpacked.tell() > most:
                raise TooLargeError
            if member.eof:
                return position - len(member.unused_data)
            waiting = member.unconsumed_tail
            if not waiting and len(piece) < room:  # else there may be more to come from what was taken in
                break


def _passes_limit(member: "zlib._Decompress", packed: bytes, room: int) -> bool:
    """Whether damaged bytes unpack to more than `room` before the damage: zlib says only that it is there."""
    for index in range(len(packed)):
        try:
            room -= len(member.decompress(packed[index : index + 1], room + 1))
        except zlib.error:
            return False
        if room < 0:
            return True
    return False
