"""Show counts of dead letters: as tables with a trend and examples for people, as JSON, or as CSV."""

import csv
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

from lakeproof.wording import count_of
from reader.dead_letters.places import as_characters, find_place, shown, underlined
from reader.dead_letters.selection import Counts, ReasonCount
from reader.letters import LetterState
from reader.output import Format, LineFeeds, console

if TYPE_CHECKING:
    from rich.console import Console

_BARS = "▁▂▃▄▅▆▇█"
_BUCKETS = 24
_REASONS = 20  # reasons in the table
_EXAMPLES = 10
_DETAIL = 200  # characters of a detail
_JSON_BYTES = 4_096  # bytes of an example in JSON


def write_counts(
    counts: Counts, stream: str, states: Sequence[LetterState], output_format: Format, out: TextIO
) -> None:
    """Write the counts of the dead letters in the given states."""
    match output_format:
        case Format.TABLE:
            _print(counts, stream, states)
        case Format.JSON:
            json.dump(_as_json(counts, stream, states), out, ensure_ascii=False, indent=1)
            out.write("\n")
        case Format.CSV:
            _write_csv(counts, out)


def sparkline(counts: Sequence[int]) -> str:
    """Return counts as bars: a blank for 0, and the highest bar for the largest count."""
    most = max(counts, default=0)
    return "".join(_BARS[-(-count * len(_BARS) // most) - 1] if count else " " for count in counts)


def parts_of_time(hours: Sequence[tuple[datetime, int]], first: datetime, last: datetime) -> tuple[list[int], int]:
    """Return counts of equal parts of the time from the hour of `first` to the hour of `last`, and hours per part."""
    start = first.replace(minute=0, second=0, microsecond=0)
    whole = (last - start) // timedelta(hours=1) + 1
    length = -(-whole // _BUCKETS)
    counts = [0] * -(-whole // length)
    for hour, count in hours:
        counts[(hour - start) // timedelta(hours=1) // length] += count
    return counts, length


def _print(counts: Counts, stream: str, states: Sequence[LetterState]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    of_states = " · ".join(f"{counts.states[state]:,} {state}" for state in LetterState)
    out.print(Text(f"Dead letters of {stream}: {of_states}", "bold"))
    if not counts.letters:
        out.print(f"None of them is {' or '.join(states)}.")
        return
    seen = [(each.first_seen, each.last_seen) for each in counts.reasons if each.first_seen and each.last_seen]
    first, last = (min(each[0] for each in seen), max(each[1] for each in seen)) if seen else (None, None)
    length = parts_of_time((), first, last)[1] if first and last else 1
    trend = f"trend, {count_of(length, 'hour')} each"
    table = Table("reason", "path", "dead letters", "first seen (UTC)", "last seen (UTC)", trend)
    table.columns[2].justify = "right"
    table.columns[1].overflow = "fold"
    for each in counts.reasons[:_REASONS]:
        bars = sparkline(parts_of_time(each.hours, first, last)[0]) if first and last else ""
        times = (_time(each.first_seen), _time(each.last_seen))
        table.add_row(each.code, Text(shown(each.path)), f"{each.letters:,}", *times, bars)
    notes = []
    if len(counts.reasons) > _REASONS:
        notes.append(f"and {len(counts.reasons) - _REASONS:,} more reasons and paths; --format json lists all")
    if sum(each.letters for each in counts.reasons) > counts.letters:
        notes.append("a dead letter with several reasons is in several rows")
    table.caption = "; ".join(notes)
    out.print(table)
    _print_places(out, "source", [(shown(name), letters) for name, letters in counts.sources], counts.distinct_sources)
    keys = [(shown(as_characters(key)), letters) for key, letters in counts.keys]
    _print_places(out, "key", keys, counts.distinct_keys)
    for each in counts.reasons[:_EXAMPLES]:
        _print_example(out, each)


def _print_places(out: "Console", what: str, places: Sequence[tuple[str, int]], distinct: int) -> None:
    from rich.table import Table
    from rich.text import Text

    if not places:
        return
    table = Table(what, "dead letters")
    table.columns[0].overflow, table.columns[1].justify = "fold", "right"
    for name, letters in places:
        table.add_row(Text(name), f"{letters:,}")
    if distinct > len(places):
        table.caption = f"and {distinct - len(places):,} more"
    out.print(table)


def _print_example(out: "Console", reason: ReasonCount) -> None:
    from rich.text import Text

    example = reason.example
    detail = shown(example.detail[:_DETAIL])
    heading = f"{reason.code} at {shown(example.path)}" if example.path not in ("", "$") else reason.code
    out.print()
    out.print(Text.assemble((heading, "bold"), f": {detail}" if detail else ""), soft_wrap=True)
    out.print(Text(f"{shown(example.source)}, position {example.position}", "dim"), soft_wrap=True)
    if example.raw is None:
        out.print("  its bytes were not kept: they are only in what landed")
        return
    # A line as wide as the terminal would wrap, and so would the carets.
    line, carets = underlined(example.raw, find_place(example.raw, example.path, example.detail), out.width - 4)
    out.print(Text(f"  {line}"), soft_wrap=True)
    if carets:
        out.print(Text(f"  {carets}", "red"), soft_wrap=True)


def _time(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}" if time else "unknown"


def _as_json(counts: Counts, stream: str, states: Sequence[LetterState]) -> dict[str, Any]:
    return {
        "stream": stream,
        "selected": list(states),
        "dead_letters": counts.letters,
        "states": counts.states,
        "reasons": [_reason_as_json(each) for each in counts.reasons],
        "sources": [{"source": name, "dead_letters": letters} for name, letters in counts.sources],
        "distinct_sources": counts.distinct_sources,
        "keys": [{"key": _text(key), "dead_letters": letters} for key, letters in counts.keys],
        "distinct_keys": counts.distinct_keys,
    }


def _reason_as_json(reason: ReasonCount) -> dict[str, Any]:
    example = reason.example
    raw = example.raw
    place = find_place(raw, example.path, example.detail) if raw is not None else None
    text = as_characters(raw) if raw is not None else ""
    return {
        "reason": reason.code,
        "path": reason.path,
        "dead_letters": reason.letters,
        "first_seen": reason.first_seen.isoformat() if reason.first_seen else None,
        "last_seen": reason.last_seen.isoformat() if reason.last_seen else None,
        "hours": [{"hour": hour.isoformat(), "dead_letters": letters} for hour, letters in reason.hours],
        "example": {
            "source": example.source,
            "position": example.position,
            "attempt": example.letter,
            "path": example.path,
            "detail": example.detail,
            "raw": _text(raw[:_JSON_BYTES]) if raw is not None else None,
            "is_whole": raw is not None and len(raw) <= _JSON_BYTES,
            "offending": _text(text[slice(*place)].encode("utf-8", "surrogateescape")) if place else None,
            # In bytes, like the offsets in details.
            "offset": len(text[: place[0]].encode("utf-8", "surrogateescape")) if place else None,
        },
    }


def _text(raw: bytes) -> str:
    r"""Decode bytes as text, with ``\xFF`` for bytes that are not UTF-8."""
    return raw.decode("utf-8", "backslashreplace")


def _write_csv(counts: Counts, out: TextIO) -> None:
    """Write a row for each reason and path."""
    writer = csv.writer(LineFeeds(out))
    writer.writerow(
        ("reason", "path", "dead_letters", "first_seen", "last_seen", "example_source", "example_position", "detail")
    )
    for each in counts.reasons:
        times = (time.isoformat() if time else "" for time in (each.first_seen, each.last_seen))
        example = each.example
        writer.writerow((each.code, each.path, each.letters, *times, example.source, example.position, example.detail))
