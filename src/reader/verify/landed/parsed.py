"""Arrays that DuckDB reads as JSON: it counts their records, and where that is sure, they are cut by simple means."""

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
    """Units of the batches that can be counted this way, by the key of each; the others are left out."""
    lengths = zip(contents, count_arrays(connection, list(contents.values())), strict=True)
    cut = {key: cut_array(contents[key], length, wanted[key]) for key, length in lengths if length is not None}
    return {key: units for key, units in cut.items() if units}


def count_arrays(connection: "DuckDBPyConnection", contents: Sequence[bytes]) -> list[int | None]:
    """Elements of each batch that is surely a JSON array; None for any other.

    DuckDB refuses what is cut short, goes on behind its end or is not UTF-8. It lets pass NaN, and a comma behind the
    last value within a record, which do not matter here; a comma behind the last record does, and is looked for.
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
    """Cut an array of `count` elements, as :func:`count_arrays` has it, where all are objects with the same between.

    In JSON, ``},{`` outside of strings is only ever between elements of an array. So if no string and no inner array
    is open at any of these, and they are as many as they should be, they are the ends of the records. Returns the
    units, with the bytes of the `wanted` ones; None if this is not sure.
    """
    if not wanted:
        return Units(count)
    inside = content[content.index(b"[") + 1 : content.rindex(b"]")]
    found = _BETWEEN_OBJECTS.search(inside)
    pieces = inside.split(found[0]) if found else [inside]
    if len(pieces) != count:
        return None
    if b"\\" in inside or b"[" in inside:
        if not all(map(_is_closed, pieces)):
            return None
    elif any(piece.count(b'"') & 1 for piece in pieces):  # the same, and faster
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
        return False  # DuckDB says 0 of what is no array
    return not content.rstrip(_SPACE)[:-1].rstrip(_SPACE).endswith(b",")


def _is_closed(piece: bytes) -> bool:
    """Whether each string and each array that begins in a piece of JSON also ends there."""
    if b"\\" in piece:
        piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
    if piece.count(b'"') % 2:
        return False
    if b"[" in piece or b"]" in piece:
        piece = _STRING.sub(b"", piece)
    return piece.count(b"[") == piece.count(b"]")
