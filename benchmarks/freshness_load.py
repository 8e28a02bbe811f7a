"""A steady load on a consumer and a reader, for the benchmarks of freshness."""

import signal
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

from benchmarks.freshness_figures import read_notes
from benchmarks.programs import PATIENCE_SECONDS, cpu_seconds, run_program, wait_for

PAUSE_SECONDS = 0.5
"""Pause of the reader between an answer and its next query."""


@dataclass(frozen=True)
class Load:
    """A program that makes load.

    Parameters
    ----------
    program, arguments
        Module, and its arguments after the file for its notes.
    notes
        File for its notes.
    seconds
        Duration.
    expected
        Number of source names that the reader's polls find in total.
    """

    program: str
    notes: str
    arguments: Sequence[object]
    seconds: float
    expected: int


def run_load(
    folder: Path, environment: dict[str, str], consumer: "Popen[bytes]", server: tuple[str, int], load: Load
) -> dict[str, float]:
    """Run a load and a reader until all is read, then end the consumer; return the load's processor time by program.

    Parameters
    ----------
    folder
        Folder for notes and logs. The notes of the reader are in ``polls``.
    environment
        Environment of the programs.
    consumer
        A consumer that is ready.
    server
        Name and process ID of the server that all programs use.
    load
        The load.
    """
    polls = folder / "polls"
    with ExitStack() as programs:
        poller = programs.enter_context(
            run_program("benchmarks.freshness_poller", folder, environment, polls, PAUSE_SECONDS)
        )
        wait_for(lambda: bool(read_notes(polls)), [consumer, poller])
        name, pid = server
        pids = {name: pid, "consumer": consumer.pid, "reader": poller.pid}
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        sender = programs.enter_context(
            run_program(load.program, folder, environment, folder / load.notes, *load.arguments)
        )
        wait_for(lambda: sender.poll() is not None, [consumer, poller], load.seconds)
        after = {name: cpu_seconds(pid) for name, pid in pids.items()}
        wait_for(lambda: sum(len(poll["seen"]) for poll in read_notes(polls)) >= load.expected, [consumer, poller])
        for program in (consumer, poller):
            program.send_signal(signal.SIGTERM)
        for program in (consumer, poller):
            program.wait(PATIENCE_SECONDS)
        return {name: after[name] - before[name] for name in after}
