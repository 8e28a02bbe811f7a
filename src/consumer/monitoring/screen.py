"""The terminal display of a run that takes what has landed: its progress, and a summary at the end.

It is derived from the log events of the run. Without a terminal, nothing is shown.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import Any

import structlog
from py4j.protocol import Py4JError
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from consumer.queries.application import STOPPING
from consumer.spark.session import running_context

_POLL_SECONDS = 0.5
_SIZES = ("files", "offsets")
"""Units of sources; all sources of a run have the same kind."""
_WORDS = {"bronze": "rows", "dead_letters": "dead letters", "rows": "windows written"}
_ONE = {"anomalies": "anomaly", "windows written": "window written"}
_COUNTED = (
    ("micro-batch", "stream", "bronze.", ("bronze", "dead_letters")),
    ("silver micro-batch", "stream", "silver.", ("kept", "duplicates", "conflicts", "late")),
    ("gold micro-batch", "product", "gold.", ("rows",)),
    ("samples micro-batch", "product", "gold.", ("samples", "anomalies")),
    ("micro-batch", "mode", "", ("messages", "kept", "duplicates", "late", "bad")),
    ("sent", "table", "topic of ", ("messages",)),
    ("published", "table", "files of ", ("windows",)),
)
"""Log events: the field with the owner's name, the beginning of its line, and the fields that are counted. Lines have
this order, in which tables are filled."""


@dataclass
class _Judged:
    """A micro-batch that is being judged: its size, its group of Spark jobs, and the share that is done."""

    sizes: Counter[str]
    jobs: str
    share: float = 0.0


class Tally:
    """Counts log events, as a processor of structlog."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str], Counter[str]] = {}
        self._waiting: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._judged: dict[str, _Judged] = {}
        self.started = False
        self.stopping = False

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Count an event, and pass it on."""
        what, sizes = event["event"], Counter({name: event[name] for name in _SIZES if name in event})
        if what == "stopped":
            raise structlog.DropEvent  # the last lines say more
        if what == "judging":
            self._judged[event["stream"]] = _Judged(sizes, event["jobs"])
            raise structlog.DropEvent
        self.stopping |= what == STOPPING
        if what == "started":
            self.started = True
            self._waiting.update(event.get("waiting", {}))
        for place, (name, whose, begin, counted) in enumerate(_COUNTED):
            if what == name and whose in event:
                numbers = {each: event[each] for each in counted if each in event}
                if numbers:
                    self._counts.setdefault((place, f"{begin}{event[whose]}"), Counter()).update(numbers)
                self._taken += sizes
                self._judged.pop(event[whose], None)
        return event

    @property
    def unit(self) -> str:
        """Unit of the sources: files, or offsets of topics."""
        return next((name for name in _SIZES if name in self._waiting or name in self._taken), _SIZES[0])

    @property
    def waiting(self) -> int | None:
        """Amount that was waiting at the start; None if unknown."""
        return self._waiting[self.unit] if self._waiting else None

    @property
    def taken(self) -> int:
        """Amount taken so far, with the finished share of what is being judged."""
        judged = list(self._judged.values())
        return self._taken[self.unit] + sum(int(each.sizes[self.unit] * each.share) for each in judged)

    def look(self, share_of: Callable[[str], float]) -> None:
        """Update the finished share of what is being judged; it stays the same after the jobs have ended."""
        for each in list(self._judged.values()):
            each.share = max(each.share, share_of(each.jobs))

    def lines(self) -> list[str]:
        """Return the results: a line for each table, topic or folder of files."""
        width = max((len(name) for _, name in self._counts), default=0)
        return [f"{name:{width}}  {_numbers(counts)}" for (_, name), counts in sorted(self._counts.items())]


@contextmanager
def screen(*, available_now: bool) -> Iterator[None]:
    """On a terminal, show the progress of a run that takes what has landed, and its results at the end."""
    if not (available_now and sys.stderr.isatty()):
        yield
        return
    tally, before, began = Tally(), structlog.get_config(), monotonic()
    console, ended = Console(stderr=True), Event()
    columns = (SpinnerColumn(), BarColumn(20), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        # Log lines are printed above the bar, which has replaced standard error.
        structlog.configure(
            processors=[tally, *before["processors"]],
            wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),  # for the event "judging"
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        task = bar.add_task("Starting Spark …", total=None)

        def show() -> None:
            while not ended.wait(_POLL_SECONDS):
                tally.look(_share_of_tasks)
                # Rich's own clock stops when the bar is full, but filling other layers may take longer.
                line = f"{how_far(tally)} {monotonic() - began:.0f} s"
                bar.update(task, total=tally.waiting, completed=tally.taken, description=line)

        watching = Thread(target=show, daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()
            structlog.configure(**before)
    for line in summed_up(tally, monotonic() - began):
        console.print(line, highlight=False, soft_wrap=True)


def how_far(tally: Tally) -> str:
    """Return the text beside the bar."""
    if not tally.started:
        return "Starting Spark …"
    if tally.waiting is None:
        return "Running …"
    if not tally.waiting:
        return "Nothing new has landed."
    following = " Finishing …" if tally.taken >= tally.waiting else ""
    return f"{min(tally.taken, tally.waiting):,} of {_counted(tally.waiting, tally.unit)}.{following}"


def summed_up(tally: Tally, seconds: float) -> list[str]:
    """Return the final lines of a run."""
    lines = tally.lines()
    begin = f"{'Stopped after' if tally.stopping else 'Done in'} {seconds:.0f} s"
    if tally.stopping and tally.waiting:
        begin += f": {tally.taken:,} of {_counted(tally.waiting, tally.unit)}"
    elif tally.taken:
        begin += f": {_counted(tally.taken, tally.unit)}"
    nothing = "" if lines or tally.stopping else " Nothing new has landed."
    return [f"{begin}.{nothing}", *(f"  {line}" for line in lines)]


def _numbers(counts: Counter[str]) -> str:
    return ", ".join(_counted(number, _WORDS.get(what, what)) for what, number in counts.items())


def _counted(number: int, what: str) -> str:
    """Return a number with its unit, in the singular for one."""
    return f"{number:,} {_ONE.get(what, what.removesuffix('s')) if number == 1 else what}"


def _share_of_tasks(jobs: str) -> float:
    """Return the share of finished tasks in the running jobs of a group; 0 without running jobs."""
    context = running_context()
    if context is None:
        return 0.0
    try:
        tracker = context.statusTracker()
        running = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(jobs))
        found = [info for job in running if (info := tracker.getJobInfo(job))]
        stages = [stage for info in found for each in info.stageIds if (stage := tracker.getStageInfo(each))]
    except (Py4JError, OSError):  # it is ending
        return 0.0
    tasks = sum(stage.numTasks for stage in stages)
    return sum(stage.numCompletedTasks for stage in stages) / tasks if tasks else 0.0
