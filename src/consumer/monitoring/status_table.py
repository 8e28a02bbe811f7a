"""The status of queries as a table for people, and as JSON."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from consumer.layers.bronze.trips import BadUnit, described
from consumer.monitoring.query_status import Doing, QueryStatus
from lakeproof.errors import LakeproofError
from lakeproof.standard_streams import printable

if TYPE_CHECKING:
    from rich.console import Console

_SAID = {
    "warned": "the breaker warned",
    "paused": "paused",
    "paused past": "a batch over the past was paused",
    "accepted": "accepted, and committed by the next run. Paused",
}
_WIDE = 10_000  # characters: wide enough that nothing is cut off
_HEADINGS = ("query", "state", "behind", "rows/s", "last commit", "watermark")
_COLOURS = {Doing.RUNNING: "green", Doing.STOPPED: "yellow", Doing.PAUSED: "red", Doing.FAILED: "red"}


def as_json(found: Sequence[QueryStatus]) -> str:
    """Return the status as JSON."""
    return json.dumps([asdict(each) for each in found], default=str, indent=2)


def write_table(found: Sequence[QueryStatus], out: TextIO) -> None:
    """Write the status as a table for people."""
    from rich.console import Console

    _print(found, Console(file=out, soft_wrap=True))


def watch(look: Callable[[], Sequence[QueryStatus]], every: float, out: TextIO) -> NoReturn:
    """Write the status for people repeatedly, until Ctrl-C; on a terminal, in place."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, has_shown = Console(file=out, soft_wrap=True), False
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            shown = StringIO()
            page = Console(file=shown, soft_wrap=True, width=console.width, force_terminal=console.is_terminal)
            try:
                _print(look(), page)
                has_shown = True
            except LakeproofError as error:
                # The server may be available again soon, and a file that was right before is being edited.
                if not (has_shown or error.retryable):
                    raise
                page.print(printable(str(error)), markup=False, highlight=False)
            page.print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, every {every:g} s", highlight=False)
            if console.is_terminal:
                live.update(Text.from_ansi(shown.getvalue()), refresh=True)
            else:
                out.write(shown.getvalue())
                out.flush()
            time.sleep(every)


def _print(found: Sequence[QueryStatus], console: "Console") -> None:
    from rich.markup import escape
    from rich.table import Table as Printed
    from rich.text import Text

    table = Printed(*_HEADINGS)
    for each in found:
        name, state, *others = _cells(each)
        table.add_row(escape(name), Text(state, _COLOURS[each.state]), *others)
    if console.measure(table, options=console.options.update(width=_WIDE)).maximum <= console.width:
        console.print(table)
    else:  # no name is cut off to fit
        for each in found:
            name, state, *others = _cells(each)
            console.print(escape(name), Text(state, _COLOURS[each.state]))
            named = zip(_HEADINGS[2:], others, strict=True)
            console.print("  " + ", ".join(f"{heading} {cell}" for heading, cell in named if cell))
    for each in found:
        if each.problem:
            console.print(printable(f"{each.query}: {each.problem}"), markup=False)
        if each.breaker:
            console.print(printable(f"{each.query}: {_of_breaker(each.breaker)}"), markup=False)


def _of_breaker(breaker: Mapping[str, Any]) -> str:
    """Describe the findings of the breaker for people."""
    said = f"{_SAID[breaker['state']]} at {breaker['at']:%Y-%m-%d %H:%M:%S}: {described(breaker)}."
    return "\n  ".join([said, *(str(BadUnit(**each)) for each in breaker["examples"])])


def _cells(each: QueryStatus) -> list[str]:
    """Return the texts of a row, in the order of the headings."""
    return [
        each.query,
        str(each.state),
        "?" if each.lag is None else f"{each.lag:,} {each.unit}",
        "" if each.rows_per_second is None else f"{each.rows_per_second:,.1f}",
        _time(each.last_commit),
        _time(each.watermark),
    ]


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else ""
