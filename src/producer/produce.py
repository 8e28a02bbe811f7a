"""Generate batches, land them, and report."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console

from producer.batches import Batch
from producer.pace import landing_times, stop_on_signals
from producer.progress import progress
from producer.report import Tally, check_writable, write_report
from producer.sinks import BatchRefused, Sink, SinkClosed


@dataclass(frozen=True)
class Run:
    """Length and pace of a run, and its report."""

    batches: int | None  # None for no end
    pause: float  # seconds between two batches
    start: datetime | None = None  # start of a virtual clock, UTC; None for the real one
    report: Path | None = None  # file of the report
    live: bool = False  # draw progress on the terminal


def produce(
    make: Callable[[Iterable[datetime]], Iterator[Batch]], tally: Tally, sink: Sink, run: Run, console: Console
) -> Tally:
    """Land batches until all are generated, a signal arrives, or the sink is closed.

    The report is always written, and counts exactly the batches that landed.
    """
    if run.report:
        check_writable(run.report)
    closed = False
    with stop_on_signals() as stop:
        sink.stop = stop
        batches = make(landing_times(stop, run.batches, run.pause, run.start))
        try:
            with progress(console, run.batches, live=run.live) as show:
                for batch in batches:
                    try:
                        sink.write(batch)
                    except BatchRefused:
                        continue
                    tally.add(batch)
                    show(tally)
        except SinkClosed:
            closed = True
        finally:
            if run.report:
                write_report(tally, run.report, sink.landed())
            if tally.batches and not closed:
                console.print(tally.table())
    if stop.requested:
        made = f"{tally.batches:,} batches with {tally.events:,} events"
        console.print(f"Stopped on request: {made} have landed.", soft_wrap=True)
    return tally
