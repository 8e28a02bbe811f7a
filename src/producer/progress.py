"""Progress of a run: a bar or live line on a terminal, otherwise a log line every 10 s."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from producer.report import Tally

log = structlog.get_logger()

_LOG_SECONDS = 10.0


@contextmanager
def progress(console: Console, total: int | None, *, live: bool) -> Iterator[Callable[[Tally], None]]:
    """Show progress; yield a function to call after each batch."""
    if not live:
        yield _log_now_and_then()
        return
    bounded = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) if total else ()
    columns = (SpinnerColumn(), *bounded, TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(_line(None), total=total)
        yield lambda tally: bar.update(task, completed=tally.batches, description=_line(tally))


def _line(tally: Tally | None) -> str:
    if tally is None:
        return "starting"
    return f"{tally.batches:,} batches, {tally.events:,} events, {tally.corrupt_batches:,} batches corrupt"


def _log_now_and_then() -> Callable[[Tally], None]:
    last = monotonic()

    def show(tally: Tally) -> None:
        nonlocal last
        if monotonic() - last >= _LOG_SECONDS:
            last = monotonic()
            log.info("producing", batches=tally.batches, events=tally.events, bytes=tally.bytes)

    return show
