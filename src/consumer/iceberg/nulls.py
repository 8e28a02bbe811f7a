"""Null lists and maps of objects, which PyIceberg reads as empty ones: apache/iceberg-python, issue 3833."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.io.pyarrow as arrow


class _KeepsNulls(arrow.ArrowProjectionVisitor):
    def list(self, list_type: Any, list_array: Any, value_array: Any) -> Any:
        return _with_nulls(list_array, super().list(list_type, list_array, value_array))

    def map(self, map_type: Any, map_array: Any, key_result: Any, value_result: Any) -> Any:
        return _with_nulls(map_array, super().map(map_type, map_array, key_result, value_result))


def keep_nulls() -> None:
    """Let PyIceberg read null lists and maps as null, in this process."""
    arrow.ArrowProjectionVisitor = _KeepsNulls  # type: ignore[misc]


def _with_nulls(landed: Any, found: Any) -> Any:
    if found is None or found.null_count == landed.null_count:
        return found
    # The cast restores the ids of nested fields, which get lost.
    return pc.if_else(landed.is_valid(), found, pa.scalar(None, found.type)).cast(found.type)
