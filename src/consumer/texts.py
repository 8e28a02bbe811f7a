"""Texts of values: two values are equal if and only if their texts are equal.

A text is a sequence of netstrings: the length of a value, a colon, the value. So adjacent values cannot be confused.
Null fields of an object are left out: a new field does not change the content of older rows.

The native judge makes the same texts (``src/native-judge/src/texts.rs``), and ``reader.verify.tables.row_hash`` in SQL.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.contracts import Field, ListType, MapType, ObjectType
from lakeproof.contracts.model import Type

_BYTES = pa.large_binary()
_COLON, _NOTHING, _NULL = (pa.scalar(text, _BYTES) for text in (b":", b"", b"-"))


def texts_of(columns: Iterable[Any]) -> Any:
    """Return the text of each row of columns, from values only: names of columns have no effect."""
    return pc.binary_join_element_wise(*(_or_null(_framed(_text(each, None))) for each in columns), _NOTHING)


def texts_of_fields(columns: Mapping[str, tuple[Any, Type | None]]) -> Any:
    """Return the text of each row's non-null fields, with their names.

    `columns` maps names in the text to values, and to the types of values that may have objects with renamed fields.
    """
    parts = [_named(name, _framed(_text(values, kind))) for name, (values, kind) in columns.items()]
    return pc.binary_join_element_wise(*parts, _NOTHING)


def _named(name: str, texts: Any) -> Any:
    encoded = name.encode()
    label = pa.scalar(b"%d:%b" % (len(encoded), encoded), _BYTES)
    return pc.coalesce(pc.binary_join_element_wise(label, texts, _NOTHING), _NOTHING)


def _framed(texts: Any) -> Any:
    """Prefix each text with its length; null stays null."""
    lengths = _bytes_of(pc.binary_length(texts))
    return pc.binary_join_element_wise(lengths, texts, _COLON)


def _text(values: Any, kind: Type | None) -> Any:
    """Return the text of each value; null for null."""
    found = values.type
    if pa.types.is_dictionary(found):
        return _text(values.dictionary_decode(), kind)
    if pa.types.is_struct(found):
        return _text_of_objects(values, kind.fields if isinstance(kind, ObjectType) else ())
    if pa.types.is_map(found):
        return _text_of_maps(values, kind.value if isinstance(kind, MapType) else None)
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        items = _or_null(_framed(_text(pc.list_flatten(values), kind.item if isinstance(kind, ListType) else None)))
        return _joined(items, values)
    if pa.types.is_floating(found):
        # Widened, since its column may be widened; 0.0 for -0.0. As bits: formatting a number takes longer.
        return _bytes_of(pc.add(values.cast(pa.float64()), 0.0).view(pa.int64()))
    if pa.types.is_temporal(found):
        return _bytes_of(values.cast(pa.int32() if pa.types.is_date32(found) else pa.int64()))
    if _is_bytes(found):
        # As hex digits: SQL texts must be UTF-8. No field of a contract is binary.
        return pa.array([value and value.hex().upper().encode() for value in values.to_pylist()], _BYTES)
    return values.cast(_BYTES) if _is_text(found) else _bytes_of(values)


def _text_of_objects(values: Any, fields: tuple[Field, ...]) -> Any:
    kinds = {name: field for field in fields for name in (field.name, *field.former_names)}
    columns = {}
    for name, inner in zip((each.name for each in values.type), values.flatten(), strict=True):
        field = kinds.get(name)
        columns[field.first_name if field else name] = (inner, field.type if field else None)
    texts = texts_of_fields(dict(sorted(columns.items())))
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, _BYTES))


def _text_of_maps(values: Any, kind: Type | None) -> Any:
    """Return the text of each map's entries in the order of their keys."""
    listed = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
    entries = pc.list_flatten(listed)
    names, inner = entries.flatten()
    names = _framed(_text(names, None))
    pairs = pc.binary_join_element_wise(names, _or_null(_framed(_text(inner, kind))), _NOTHING)
    parents = pc.list_parent_indices(listed)
    if not _are_sorted(parents, pairs):
        order = pc.sort_indices(
            pa.table({"parent": parents, "pair": pairs}), [("parent", "ascending"), ("pair", "ascending")]
        )
        pairs = pairs.take(order)
    return _joined(pairs, listed)


def _are_sorted(parents: Any, texts: Any) -> bool:
    """Return whether the texts of each parent ascend; usually, all objects have their keys in the same order."""
    if len(texts) < 2:
        return True
    same = pc.equal(parents[1:], parents[:-1])
    descends = pc.less(texts[1:], texts[:-1])
    return not pc.any(pc.and_(same, descends)).as_py()


def _joined(texts: Any, lists: Any) -> Any:
    """Join the texts of items to a text for each list; null for null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    whole = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), texts)
    joined = pc.binary_join(whole, _NOTHING)
    return pc.if_else(lists.is_valid(), joined, pa.scalar(None, _BYTES))


def _or_null(texts: Any) -> Any:
    return pc.coalesce(texts, _NULL)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _bytes_of(values: Any) -> Any:
    return values.cast(pa.large_string()).cast(_BYTES)
