"""Examples of bad units, for people: one for each set of reasons."""

from collections.abc import Mapping, Sequence
from typing import Any

from consumer.layers.bronze.trips import BadUnit
from lakeproof.judge.judged import Bad
from lakeproof.standard_streams import printable
from lakeproof.tables.names import SOURCE

_MOST = 8  # sets of reasons with an example, per task
_MOST_CHARACTERS = 120


def note_examples(known: dict[str, BadUnit], bad: Bad, reason_sets: Sequence[str], columns: Mapping[str, Any]) -> None:
    """Add an example for each set of reasons that has none yet; `columns` are the origins of the units."""
    for reasons in dict.fromkeys(reason_sets):
        if len(known) >= _MOST:
            return
        if reasons not in known:
            index = reason_sets.index(reasons)
            first = bad.reasons[index].as_py()[0]
            raw = bad.raw[index].as_py()
            known[reasons] = BadUnit(
                printable(columns[SOURCE][index].as_py()),
                bad.positions[index].as_py(),
                first["code"],
                _cut(printable(first["path"])),
                _cut(printable(first["detail"])),
                "no bytes" if raw is None else _text(raw),
            )


def _text(raw: bytes) -> str:
    shown = raw[:_MOST_CHARACTERS].decode(errors="backslashreplace").replace("\n", "\\n").replace("\t", "\\t")
    shown = printable(shown)
    return _cut(shown) if len(shown) > _MOST_CHARACTERS or len(raw) <= _MOST_CHARACTERS else f"{shown}…"


def _cut(text: str) -> str:
    text = text.replace("\n", "\\n")
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
