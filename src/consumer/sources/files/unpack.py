"""Unpack gzip up to a limit: in time linear in the input and output, and with a single copy."""

import io
import re
import zlib

_GZIP = 31  # zlib's number for gzip's format, checksums included
_STEP = 1 << 20
# A member's first slice is small, since the bytes after a short member are copied, and read again for the next member.
_FIRST_SLICE = 1 << 9
_LAST_SLICE = 1 << 18
# No byte of gzip unpacks to more bytes.
_MOST_OF_A_BYTE = 2_064
_ZEROS = re.compile(rb"\0*+")


class UnpackError(Exception):
    """The input is not gzip, or is damaged or truncated."""


class CutShortError(UnpackError):
    """The input ends inside a member."""


class TooLargeError(Exception):
    """The output has more bytes than the limit."""


def unpack(packed: bytes, most: int) -> bytes:
    """Unpack all members of a gzip file, to at most `most` bytes; zeros may follow each member."""
    unpacked = io.BytesIO()
    position = 0
    while position < len(packed):
        behind = _unpack_member(packed, position, unpacked, most)
        position = _ZEROS.match(packed, behind).end()  # type: ignore[union-attr]  # matches at least ""
    return unpacked.getvalue()  # no copy: BytesIO returns its own buffer


def unpack_beginning(packed: bytes, most: int) -> tuple[bytes, UnpackError] | None:
    """Unpack the sound beginning of a gzip file that :func:`unpack` refuses; return it with the reason for its end.

    The sound beginning is all members before the first damaged one, whose checksums are right, or all output of a
    truncated file. Output of a damaged member is useless: zlib notices damage long after it starts to return wrong
    bytes. Return None if the file is not damaged. Raises TooLargeError like :func:`unpack`.
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
        position = _ZEROS.match(packed, behind).end()  # type: ignore[union-attr]  # matches at least ""
    return None


def _unpack_member(packed: bytes, position: int, unpacked: io.BytesIO, most: int) -> int:
    """Unpack the member at `position`; return the offset after it."""
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
            # At most one byte more than the limit.
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
            if not waiting and len(piece) < room:  # else there may be more output for the same input
                break


def _passes_limit(member: "zlib._Decompress", packed: bytes, room: int) -> bool:
    """Return whether damaged bytes unpack to more than `room` before the damage, whose place zlib does not report."""
    for index in range(len(packed)):
        try:
            room -= len(member.decompress(packed[index : index + 1], room + 1))
        except zlib.error:
            return False
        if room < 0:
            return True
    return False
