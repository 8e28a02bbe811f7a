"""What a run shows on a terminal while it takes what has landed, and the line that it ends with.

Both are made from what the run logs anyway. Without a terminal nothing is shown.
"""

import sys
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark import SparkContext
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_POLL_SECONDS = 0.5
_SIZES = ("files", "partitions", "offsets")
_WORDS = {"bronze": "rows to bronze", "dead_letters": "dead letters", "rows": "windows written"}
_COUNTED = {
    "micro-batch": ("stream", "bronze.", (*_SIZES, "bronze", "dead_letters")),
    "silver micro-batch": ("stream", "silver.", ("kept", "duplicates", "conflicts", "late")),
    "gold micro-batch": ("product", "gold.", ("rows",)),
    "sent": ("table", "topic of ", ("messages",)),
    "published": ("table", "files of ", ("windows",)),
}
"""Of each event that is logged: whose it is, its layer, and what is counted."""


class Tally:
    """Counts what is logged, as a processor of structlog."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Count an event, and pass it on."""
        if event["event"] == "stopped":
            raise structlog.DropEvent  # the last line says more
        whose, layer, counted = _COUNTED.get(event["event"], ("", "", ()))
        if counted:
            counts = self._counts.setdefault(f"{layer}{event[whose]}", Counter())
            counts.update({name: event[name] for name in counted if name in event})
        return event

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __str__(self) -> str:
        lines = []
        for name, counts in sorted(self._counts.items()):
            numbers = ", ".join(f"{number:,} {_WORDS.get(what, what)}" for what, number in counts.items())
            lines.append(f"{name}: {numbers}")
        return " · ".join(lines)


@contextmanager
def screen(*, available_now: bool) -> Iterator[None]:
    """Show on a terminal how far a run is that takes what has landed; at its end, what became of it."""
    if not (available_now and sys.stderr.isatty()):
        yield
        return
    tally, before, began = Tally(), structlog.get_config(), monotonic()
    console, ended = Console(stderr=True), Event()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        # Lines of the log go above the bar: it has taken the place of standard error.
        structlog.configure(
            processors=[tally, *before["processors"]], logger_factory=structlog.PrintLoggerFactory(sys.stderr)
        )
        task = bar.add_task("Starting Spark …", total=None)

        def show() -> None:
            while not ended.wait(_POLL_SECONDS):
                bar.update(task, description=f"{_tasks()} {tally}")

        watching = Thread(target=show, daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()
            structlog.configure(**before)
    console.print(f"Done in {monotonic() - began:.0f} s. {tally or 'Nothing new had landed'}.", highlight=False)


def _tasks() -> str:
    """How far the jobs of Spark are, which are running now."""
    context = SparkContext._active_spark_context
    if context is None or getattr(context, "_jsc", None) is None:  # its JVM is not there yet
        return "Starting Spark …"
    try:
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except (Py4JError, OSError):  # it is ending
        return ""
    total = sum(stage.numTasks for stage in stages if stage)
    done = sum(stage.numCompletedTasks for stage in stages if stage)
    return f"{done:,} of {total:,} tasks …" if total else "…"
