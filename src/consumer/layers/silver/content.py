"""The identity of rows: the text of the primary key, and the hash of the content."""

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from consumer.native_hashes import native_hashes
from consumer.texts import texts_of_fields
from lakeproof.contracts import Contract, ListType, MapType, ObjectType
from lakeproof.contracts.model import Type

_DIGEST_SIZE = 16


def keys(rows: pa.RecordBatch, contract: Contract) -> Any:
    """Return the text of the primary key of each row."""
    by_name = {field.name: field for field in contract}
    texts = texts_of_fields({name: (rows.column(name), by_name[name].type) for name in contract.primary_key})
    return texts.cast(pa.binary())


def content_hashes(rows: pa.RecordBatch, contract: Contract) -> Any:
    """Return the BLAKE2b hash (128 bits) of each row's fields, except derived ones.

    A contract can rename and reorder fields without a change of content. Derived fields are no content, since a copy of
    a record is ingested at another time.
    """
    fields = sorted((field for field in contract if not field.derived), key=lambda field: field.first_name)
    columns = {field.first_name: (_as_hashed(rows.column(field.name), field.type), field.type) for field in fields}
    found = native_hashes("content_hashes", columns, rows.num_rows)
    if found is None:
        texts: list[Any] = texts_of_fields(columns).to_pylist()
        found = b"".join(blake2b(text, digest_size=_DIGEST_SIZE).digest() for text in texts)
    offsets = np.arange(rows.num_rows + 1, dtype=np.int32) * _DIGEST_SIZE
    return pa.Array.from_buffers(
        pa.binary(), rows.num_rows, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(found)]
    )


def _as_hashed(values: Any, kind: Type) -> Any:
    """Replace null lists and maps of objects by empty ones: the hashes in silver do not distinguish them.

    PyIceberg read nulls as empty when these hashes were computed, see :mod:`consumer.iceberg.nulls`.
    """
    if not _has_objects(kind):
        return values
    match kind:
        case ObjectType(fields):
            kinds = {field.name: field.type for field in fields}
            parts = [values.field(index) for index in range(values.type.num_fields)]
            named = zip(values.type, parts, strict=True)
            parts = [_as_hashed(part, kinds[each.name]) if each.name in kinds else part for each, part in named]
            return pa.StructArray.from_arrays(parts, fields=list(values.type), mask=values.is_null())
        case ListType(item):
            items = _as_hashed(pc.list_flatten(values), item)
            whole: Any = pa.LargeListArray.from_arrays(_offsets(values), items)
        case MapType(item):
            listed = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
            names, items = pc.list_flatten(listed).flatten()
            whole = pa.MapArray.from_arrays(_offsets(listed).cast(pa.int32()), names, _as_hashed(items, item))
        case _:
            return values
    return whole if isinstance(item, ObjectType) else pc.if_else(values.is_valid(), whole, pa.scalar(None, whole.type))


def _has_objects(kind: Type) -> bool:
    """Return whether a type contains lists or maps of objects."""
    match kind:
        case ObjectType(fields):
            return any(_has_objects(field.type) for field in fields)
        case ListType(item) | MapType(item):
            return isinstance(item, ObjectType) or _has_objects(item)
        case _:
            return False


def _offsets(lists: Any) -> Any:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))
