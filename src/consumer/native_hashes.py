"""Hashes of rows and of files by the native judge's package, if it is installed.

It computes the texts of :mod:`consumer.texts` and their hashes five times as fast, and hashes files side by side,
in the lanes of the processor's vectors. Without it, or if it fails, Python computes the same.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from lakeproof.contracts import ListType, MapType, ObjectType
from lakeproof.contracts.model import Type
from lakeproof.install.judges import judge_choice
from lakeproof.landing.zone import content_hash

log = structlog.get_logger()

Kind = Literal["row_hashes", "content_hashes", "file_hashes"]
_FILE_HASH_BYTES = 16
# Form, number of rows, a byte per row for its validity, buffers, children, their names, and the scale of decimals.
_Part = tuple[str, int, bytes | None, list[bytes], list[Any], list[bytes], int]


class _UnsupportedError(Exception):
    """A column of a type that no table has."""


def native_hashes(kind: Kind, columns: Mapping[str, tuple[Any, Type | None]], rows: int) -> bytes | None:
    """Return the concatenated hashes of rows; None if Python has to compute them.

    `columns` are those of :func:`consumer.texts.texts_of_fields`.
    """
    hash_rows = native_function(kind)
    if hash_rows is None:
        return None
    names, children = [], []
    try:
        for name, (values, declared) in columns.items():
            names.append(_label(name))
            children.append(_part(values, declared))
        return hash_rows(("object", rows, None, [], children, names, 0))
    except _UnsupportedError:
        return None
    except RuntimeError as error:  # an error of the native package, not of the rows
        log.warning("native_hashes_replaced", error=str(error))
        return None


def file_hashes(contents: Sequence[bytes]) -> list[str]:
    """Return :func:`lakeproof.landing.zone.content_hash` of each file."""
    hash_files = native_function("file_hashes")
    if hash_files is not None:
        try:
            found = hash_files(contents)
        except RuntimeError as error:  # an error of the native package, not of the files
            log.warning("native_hashes_replaced", error=str(error))
        else:
            return [found[start : start + _FILE_HASH_BYTES].hex() for start in range(0, len(found), _FILE_HASH_BYTES)]
    return [content_hash(content) for content in contents]


@cache
def native_function(kind: Kind) -> Callable[..., bytes] | None:
    """Return a function that computes hashes, if the native judge is installed and has it."""
    if judge_choice().name != "native":
        return None
    return getattr(import_module("native_judge"), kind, None)


def _label(name: str) -> bytes:
    encoded = name.encode()
    return b"%d:%b" % (len(encoded), encoded)


def _part(values: Any, declared: Type | None) -> _Part:
    """Describe a column, without values of parent arrays outside of its slice."""
    found = values.type
    if pa.types.is_dictionary(found):
        return _part(values.dictionary_decode(), declared)
    if pa.types.is_struct(found):
        fields = declared.fields if isinstance(declared, ObjectType) else ()
        known = {name: field for field in fields for name in (field.name, *field.former_names)}
        inner: dict[str, _Part] = {}
        for index, child in enumerate(found):
            field = known.get(child.name)
            part = _part(values.field(index), field.type if field else None)
            inner[field.first_name if field else child.name] = part
        names = sorted(inner)
        return _described("object", values, [], [inner[name] for name in names], [_label(name) for name in names])
    if pa.types.is_map(found):
        starts, (keys, items) = _entries(values, values.keys, values.items)
        kind = declared.value if isinstance(declared, MapType) else None
        return _described("map", values, [starts], [_part(keys, None), _part(items, kind)])
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        starts, (items,) = _entries(values, values.values)
        return _described(
            "list", values, [starts], [_part(items, declared.item if isinstance(declared, ListType) else None)]
        )
    if pa.types.is_boolean(found):
        return _described("boolean", values, [_fixed(values.cast(pa.int8()), 1)])
    if pa.types.is_floating(found):
        return _described("int", values, [_fixed(pc.add(values.cast(pa.float64()), 0.0), 8)])
    if pa.types.is_integer(found) or pa.types.is_temporal(found):
        whole = values if found.bit_width == _LONG else values.cast(pa.int32()).cast(pa.int64())
        return _described("int", values, [_fixed(whole, 8)])
    if pa.types.is_decimal128(found):
        return _described("decimal", values, [_fixed(values, 16)], scale=found.scale)
    if form := _FORMS.get(found):
        return _described(form[0], values, _texts(values, form[1]))
    raise _UnsupportedError(found)


_LONG = 64  # bits
_FORMS = {
    pa.string(): ("text", np.int32),
    pa.large_string(): ("text", np.int64),
    pa.binary(): ("bytes", np.int32),
    pa.large_binary(): ("bytes", np.int64),
}
"""Forms of texts, and the types of their offsets."""


def _described(
    form: str,
    values: Any,
    buffers: list[bytes],
    children: list[_Part] | None = None,
    names: list[bytes] | None = None,
    scale: int = 0,
) -> _Part:
    validity = _fixed(values.is_valid().cast(pa.int8()), 1) if values.null_count else None
    return form, len(values), validity, buffers, children or [], names or [], scale


def _fixed(values: Any, width: int) -> bytes:
    """Return the bytes of a column with values of `width` bytes."""
    return _slice(values.buffers()[1], values.offset * width, len(values) * width)


def _entries(values: Any, *children: Any) -> tuple[bytes, list[Any]]:
    """Return the offsets of a column's lists, and the part of the children with their items."""
    offsets: Any = values.offsets.to_numpy().astype(np.int64)
    first, end = int(offsets[0]), int(offsets[-1])
    return (offsets - first).tobytes(), [child.slice(first, end - first) for child in children]


def _texts(values: Any, kind: Any) -> list[bytes]:
    """Return the offsets of a column's texts, and the texts."""
    _, buffer, data = values.buffers()
    offsets: Any = np.zeros(1, np.int64)
    if len(values):
        offsets = np.frombuffer(buffer, kind, len(values) + 1, values.offset * kind().itemsize).astype(np.int64)
    first = int(offsets[0])
    return [(offsets - first).tobytes(), _slice(data, first, int(offsets[-1]) - first)]


def _slice(buffer: Any, start: int, size: int) -> bytes:
    found: bytes = buffer.slice(start, size).to_pybytes() if buffer is not None else b""
    return found
