"""Read the records of sample files, in the formats of docs/json-types.md."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakeproof.contracts.tokens import MAX_DEPTH, FloatToken, IntToken
from lakeproof.errors import UsageError

_SPACE = " \t\r\n"


@dataclass
class SampleFiles:
    """Reads the records of sample files, and notes what could not be read."""

    path: Path  # a file, or a folder that is read recursively, in order of names
    max_records: int  # how many records to read at most
    files: int = 0
    records: int = 0
    # Units that no contract accepts, one line each.
    left_out: list[str] = field(default_factory=list)
    is_cut: bool = False  # whether `max_records` cut the samples off

    def read(self) -> Iterator[dict[str, Any]]:
        """Read the records: JSON objects with numbers as tokens."""
        for path in self._paths():
            self.files += 1
            for position, unit in self._units(path):
                if self.records == self.max_records:
                    self.is_cut = True
                    return
                if isinstance(unit, dict) and not (why := _unfit(unit)):
                    self.records += 1
                    yield unit
                else:
                    self._leave_out(path, f"unit {position}: {why if isinstance(unit, dict) else 'not an object'}")

    def _paths(self) -> list[Path]:
        if self.path.is_file():
            return [self.path]
        if not self.path.is_dir():
            raise UsageError(f"No file or folder found at {self.path}.", "Use the path of a file, or of a folder.")
        return sorted(
            path
            for path in self.path.rglob("*")
            if path.is_file() and not any(part[0] in "._" for part in path.relative_to(self.path).parts)
        )

    def _leave_out(self, path: Path, why: str) -> None:
        name = path.name if path == self.path else str(path.relative_to(self.path))
        self.left_out.append(f"{name}: {why}")

    def _units(self, path: Path) -> Iterator[tuple[int, Any]]:
        content = path.read_bytes()
        if path.suffix == ".gz":
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                self._leave_out(path, f"not gzip: {error}")
                return
        # Invalid UTF-8 becomes lone surrogates, which are reported with their field.
        text = content.decode("utf-8-sig", "surrogateescape").strip(_SPACE)
        try:
            whole = _decode(text)
        except (ValueError, RecursionError) as error:
            if not text.startswith("{") or "\n" not in text:
                self._leave_out(path, f"not JSON: {error}")
                return
            yield from self._lines(path, text)
            return
        yield from enumerate(whole) if isinstance(whole, list) else [(0, whole)]

    def _lines(self, path: Path, text: str) -> Iterator[tuple[int, Any]]:
        lines = [line for line in text.split("\n") if line.strip(_SPACE)]
        for position, line in enumerate(lines):
            try:
                unit = _decode(line.strip(_SPACE))
            except (ValueError, RecursionError) as error:
                self._leave_out(path, f"unit {position}: not JSON: {error}")
                continue
            yield position, unit


class _Doubled(dict[str, Any]):
    """An object with a duplicate key."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Doubled(found)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


_decode = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=IntToken, parse_float=FloatToken, parse_constant=_refuse_constant
).decode


def _unfit(record: dict[str, Any]) -> str:
    """Why no contract accepts a record; empty if one can."""
    waiting: list[tuple[Any, int]] = [(record, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, dict | list) and depth > MAX_DEPTH:
            return f"nested more than {MAX_DEPTH} levels deep"
        if isinstance(item, _Doubled):
            return "duplicate key"
        if isinstance(item, dict):
            waiting += [(each, depth + 1) for each in (*item, *item.values())]
        elif isinstance(item, list):
            waiting += [(each, depth + 1) for each in item]
        elif isinstance(item, str) and not _is_text(item):
            return "invalid UTF-8"
    return ""


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
