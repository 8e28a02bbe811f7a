"""JSON arrays: DuckDB counts their records, and if the result is certain, simple string operations split them."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from reader.verify.landed.units import Units

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# DuckDB needs several times the size of what it parses.
_MAX_PARSED_BYTES = 32 << 20
_SPACE = b" \t\r\n"
_ARRAY_BEGINS = re.compile(rb"[ \t\r\n]*\[")
_BETWEEN_OBJECTS = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_STRING = re.compile(rb'"[^"]*"')


def as_units(
    connection: "DuckDBPyConnection", contents: Mapping[str, bytes], wanted: Mapping[str, AbstractSet[int]]
) -> dict[str, Units]:
    """Return the units of the batches that can be counted this way, by key; the others are left out."""
    lengths = zip(contents, count_arrays(connection, list(contents.values())), strict=True)
    cut = {key: cut_array(contents[key], length, wanted[key]) for key, length in lengths if length is not None}
    return {key: units for key, units in cut.items() if units}


def count_arrays(connection: "DuckDBPyConnection", contents: Sequence[bytes]) -> list[int | None]:
    """Return the number of elements of each batch that is certainly a JSON array; None for other batches.

    DuckDB rejects text that is truncated, has trailing characters or is not UTF-8. It accepts NaN, and a comma after
    the last value in a record, which do not matter here; a comma after the last record does, and is checked for.
    """
    import pyarrow as pa

    texts = [content if _may_be_parsed(content) else None for content in contents]
    batches = pa.table({"number": range(len(texts)), "content": pa.array(texts, pa.large_binary())})
    connection.register("batches", batches)
    lengths = connection.execute(
        "SELECT try(json_array_length(text)) "
        "FROM (SELECT number, try(decode(content)) AS text FROM batches) ORDER BY number"
    ).fetchall()
    connection.unregister("batches")
    return [length for (length,) in lengths]


def cut_array(content: bytes, count: int, wanted: AbstractSet[int]) -> Units | None:
    """Split an array of `count` elements, from :func:`count_arrays`, if all are objects with the same separator.

    In JSON, ``},{`` outside of strings occurs only between elements of an array. So if no string and no inner array is
    open at any occurrence, and their number is as expected, they are the ends of the records. Returns the units, with
    the bytes of the `wanted` ones; None if the result is not certain.
    """
    if not wanted:
        return Units(count)
    inside = content[content.index(b"[") + 1 : content.rindex(b"]")]
    found = _BETWEEN_OBJECTS.search(inside)
    pieces = inside.split(found[0]) if found else [inside]
    if len(pieces) != count:
        return None
    if not _are_closed(pieces, inside):
        return None
    last = count - 1
    picked = {
        position: (b"{" * (position > 0) + pieces[position] + b"}" * (position < last)).strip(_SPACE)
        for position in wanted
        if 0 <= position <= last
    }
    return Units(count, picked=picked)


def _may_be_parsed(content: bytes) -> bool:
    if len(content) > _MAX_PARSED_BYTES or not _ARRAY_BEGINS.match(content):
        return False  # for other values than arrays, DuckDB returns 0
    return not content.rstrip(_SPACE)[:-1].rstrip(_SPACE).endswith(b",")


def _are_closed(pieces: Sequence[bytes], inside: bytes) -> bool:
    """Return whether each string and each array that begins in a piece of `inside` also ends there.

    Most pieces have neither escapes nor arrays, and only their quotes are counted. If one of them closes an array, this
    array begins in an earlier piece, which is not closed.
    """
    marks = [mark for mark in (b"\\", b"[") if mark in inside]
    if not all(_is_closed(piece) for mark in marks for piece in pieces if mark in piece):
        return False
    return all(b"\\" in piece for piece in pieces if piece.count(b'"') & 1)


def _is_closed(piece: bytes) -> bool:
    """Return whether each string and each array that begins in a piece of JSON also ends there."""
    if b"\\" in piece:
        piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
    if piece.count(b'"') % 2:
        return False
    if b"[" in piece or b"]" in piece:
        piece = _STRING.sub(b"", piece)
    return piece.count(b"[") == piece.count(b"]")
