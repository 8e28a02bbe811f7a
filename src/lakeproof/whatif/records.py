"""Write records as JSON from the typed columns of bronze, many at once in Arrow.

A record has the fields of the contract that judged it, under the names in that contract.
:mod:`lakeproof.whatif.unseen` lists what the columns do not show.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.contracts import (
    ISO_8601,
    Contract,
    DecimalType,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    TimeForm,
    TimeFormat,
    Type,
)
from lakeproof.judge.judged import ArrowColumn
from lakeproof.tables.names import RESCUED
from lakeproof.whatif.rescued import put_back

TimeForms: TypeAlias = Mapping[str, TimeForm]
"""Formats for the timestamps of fields, by path like ``event.timestamp``; ISO 8601 by default."""

_US = pa.timestamp("us")
_TO_ESCAPE = r'["\\[:cntrl:]]'
_SECOND = 1_000_000


def record_texts(rows: pa.RecordBatch, judged_by: Contract, names: Mapping[str, str], times: TimeForms) -> Any:
    """Write rows of bronze as JSON objects, without null fields, which are like absent ones.

    `names` has the current columns of fields that were renamed since, by the name in the contract that judged the rows.
    """
    columns = {
        field.name: rows.column(column)
        for field in judged_by.live
        if (column := names.get(field.name, field.name)) in rows.schema.names
    }
    texts: Any = _object(columns, judged_by.live, rows.num_rows, times, "")
    if RESCUED in rows.schema.names and rows.column(RESCUED).null_count < rows.num_rows:
        rescued: Any = rows.column(RESCUED)
        found = pc.indices_nonzero(pc.is_valid(rescued))
        whole = [
            put_back(text, values)
            for text, values in zip(texts.take(found).to_pylist(), rescued.take(found).to_pylist(), strict=True)
        ]
        texts = pc.replace_with_mask(texts, pc.is_valid(rescued), pa.array(whole, pa.string()))
    return texts


def _object(
    columns: Mapping[str, ArrowColumn], fields: tuple[Field, ...], rows: int, times: TimeForms, within: str
) -> Any:
    present = [field for field in fields if field.name in columns]
    if not present:
        return pa.repeat("{}", rows)
    # Null values become empty text, so the comma is part of a member. Fields without nulls come first.
    present.sort(key=lambda field: columns[field.name].null_count)
    has_first = not columns[present[0].name].null_count
    members: list[Any] = [
        pc.binary_join_element_wise(
            f"{'' if has_first and field is present[0] else ','}{json.dumps(field.name)}:",
            _texts(columns[field.name], field.type, times, within + field.name),
            "",
        )
        for field in present
    ]
    joined: Any = pc.binary_join_element_wise(*members, "", null_handling="replace", null_replacement="")
    return pc.binary_join_element_wise("{", joined if has_first else pc.utf8_slice_codeunits(joined, 1), "}", "")


def _texts(values: Any, kind: Type, times: TimeForms, path: str) -> Any:
    """Return the JSON text of each value; null for null."""
    match kind:
        case ObjectType(fields):
            members = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
            texts = _object(members, fields, len(values), times, f"{path}.")
            return texts if not values.null_count else pc.if_else(values.is_valid(), texts, None)
        case ListType(item):
            offsets, begin, count = _span(values)
            items = _texts(values.values.slice(begin, count), item, {}, path).fill_null("null")
            return _joined("[", offsets, items, "]", values)
        case MapType(value):
            offsets, begin, count = _span(values)
            items = _texts(values.items.slice(begin, count), value, {}, path).fill_null("null")
            keys = _quoted(values.keys.slice(begin, count))
            return _joined("{", offsets, pc.binary_join_element_wise(keys, items, ":"), "}", values)
        case DecimalType():
            return values.cast(pa.string())
        case PrimitiveType.STRING | PrimitiveType.SCALAR:
            return _quoted(values)
        case PrimitiveType.DATE:
            return pc.binary_join_element_wise('"', values.cast(pa.string()), '"', "")
        case PrimitiveType.TIMESTAMP:
            return _times(values, times.get(path, ISO_8601))
    return values.cast(pa.string())


def _span(lists: Any) -> tuple[Any, int, int]:
    """Return the offsets of lists or maps from 0, and the start and number of their items in the child array."""
    offsets = lists.offsets
    begin = offsets[0].as_py()
    return pc.subtract(offsets, begin) if begin else offsets, begin, offsets[-1].as_py() - begin


def _joined(before: str, offsets: Any, items: Any, behind: str, values: Any) -> Any:
    joined: Any = pc.binary_join(pa.ListArray.from_arrays(offsets.cast(pa.int32()), items), ",")
    texts: Any = pc.binary_join_element_wise(before, joined, behind, "")
    return texts if not values.null_count else pc.if_else(values.is_valid(), texts, None)


def _quoted(values: Any) -> Any:
    odd = pc.match_substring_regex(values, _TO_ESCAPE)
    if pc.any(odd).as_py():
        odd = odd.fill_null(False)
        escaped = [json.dumps(text, ensure_ascii=False)[1:-1] for text in values.filter(odd).to_pylist()]
        values = pc.replace_with_mask(values, odd, pa.array(escaped, pa.string()))
    return pc.binary_join_element_wise('"', values, '"', "")


def _times(values: Any, form: TimeForm) -> Any:
    written = form.format
    if written.per_second:
        return _epochs(values, written.per_second)
    if written.may_lack_offset:
        zone = "UTC" if form.zone == "UTC" else form.zone
        texts = pc.local_timestamp(values.cast(pa.timestamp("us", tz=zone))).cast(pa.string())
        if written is TimeFormat.DATE:
            return pc.binary_join_element_wise('"', pc.utf8_slice_codeunits(texts, 0, 10), '"', "")
        end = '"'
    else:
        # Casting times without a zone to text is ten times as fast.
        texts, end = values.cast(_US).cast(pa.string()), 'Z"'
    if " " not in written:
        texts = pc.replace_substring(texts, " ", "T")
    return pc.binary_join_element_wise('"', texts, end, "")


def _epochs(values: Any, per_second: int) -> Any:
    microseconds = values.cast(pa.int64())
    if per_second == 1:
        exact = pc.multiply(microseconds.cast(pa.decimal128(19, 0)), pa.scalar(Decimal("0.000001")))
        whole = pc.equal(pc.multiply(pc.divide(microseconds, _SECOND), _SECOND), microseconds)
        return pc.if_else(whole, pc.divide(microseconds, _SECOND).cast(pa.string()), exact.cast(pa.string()))
    return pc.divide(microseconds, _SECOND // per_second).cast(pa.string())
