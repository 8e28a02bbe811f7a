"""Results as a table for people, as CSV or as JSON.

CSV is RFC 4180 with LF line ends: UTF-8 with a header, null is an empty field, nested values are JSON. JSON is one
array with an object per row. In both, blobs are base64; decimals, dates, times, intervals and ``"nan"`` are strings.
"""

import base64
import csv
import io
import json
import math
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import date, datetime, time
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from lakeproof.standard_streams import printable
from reader.views import identifier

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from rich.console import Console
    from rich.table import Table

_FETCH_ROWS = 10_000
_TABLE_ROWS = 40
_PLENTY = 1_000
_INEXACT = ("INTERVAL", "TIMESTAMP_NS")


class Format(StrEnum):
    """Output format of results."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def write_result(result: "DuckDBPyRelation", output_format: Format, out: TextIO) -> None:
    """Write all rows of `result`; a table is cut, with a note."""
    if output_format is not Format.TABLE:
        result = _with_exact_times(result)
    match output_format:
        case Format.TABLE:
            shown = io.StringIO()
            with redirect_stdout(shown):
                result.show(max_width=_width(), max_rows=_TABLE_ROWS)
            out.write(printable(shown.getvalue()))
        case Format.CSV:
            writer = csv.writer(LineFeeds(out))
            writer.writerow(result.columns)
            writer.writerows([_field(value) for value in row] for row in _rows(result))
        case Format.JSON:
            columns = _distinct(result.columns)
            out.write("[")
            for number, row in enumerate(_rows(result)):
                out.write(",\n" if number else "\n")
                json.dump(dict(zip(columns, map(_plain, row), strict=True)), out, ensure_ascii=False)
            out.write("\n]\n")


class LineFeeds:
    r"""File for a CSV writer that ends rows with LF.

    With LF as its own line ending, a CSV writer would not quote values with CR, which readers take for a line ending.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, row: str) -> int:
        """Write a row."""
        return self._out.write(row.removesuffix("\r\n") + "\n")


def console() -> "Console":
    """Make a console on standard output, as wide as a result's table."""
    from rich.console import Console

    return Console(width=_width())


def print_counts(out: "Console", table: "Table") -> None:
    """Print a table of names and numbers. A wide table loses padding, then wraps headings; nothing is cut."""
    table.columns[0].no_wrap = True
    for column in table.columns:
        column.overflow = "fold"
    if out.measure(table, options=out.options.update(max_width=_PLENTY)).maximum > out.width:
        table.padding = 0
    out.print(table)


def _width() -> int:
    """Return the number of columns of the terminal; 160 without a terminal."""
    return shutil.get_terminal_size((160, 50)).columns


def _with_exact_times(result: "DuckDBPyRelation") -> "DuckDBPyRelation":
    """Convert intervals and nanoseconds to text: as Python objects, months have 30 days and times microseconds."""
    kinds = [str(kind) for kind in result.types]
    if not any(kind in _INEXACT for kind in kinds):
        return result
    # By position: names may occur twice.
    exact = (f"#{number}{'::VARCHAR' if kind in _INEXACT else ''}" for number, kind in enumerate(kinds, start=1))
    return result.project(
        ", ".join(f"{value} AS {identifier(name)}" for value, name in zip(exact, result.columns, strict=True))
    )


def _rows(result: "DuckDBPyRelation") -> Iterator[tuple[Any, ...]]:
    while rows := result.fetchmany(_FETCH_ROWS):
        yield from rows


def _distinct(names: list[str]) -> list[str]:
    """Return `names`, made unique with numbers, as keys of a JSON object."""
    seen: dict[str, None] = {}
    for name in names:
        number, free = 0, name
        while free in seen:
            number += 1
            free = f"{name}_{number}"
        seen[free] = None
    return list(seen)


def _field(value: Any) -> Any:
    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, bool | dict | list) else plain


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {key if isinstance(key, str) else str(_plain(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            return str(value)
