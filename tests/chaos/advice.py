"""A consumer that ends gives advice. Follow it to the letter, and start the consumer again."""

import re
import shlex

from tests.chaos.bench import Bench
from tests.chaos.grid import Outcome
from tests.chaos.lake import STREAM

_COMMAND = re.compile(r"`((?:consumer|lakeproof) [^`]+)`")
_STATEMENT = re.compile(r"To undo this, run: (.+)\.$", re.MULTILINE)
_REFUSALS = 3
_STALLED_SECONDS = 60.0


def go_on(bench: Bench, outcome: Outcome) -> Outcome:
    """Start a consumer if there is none, follow its advice if it ends, then land more, drain and check everything."""
    bench.calm()
    for _ in range(_REFUSALS):
        bench.consumer = bench.consumer or bench.start()
        bench.await_start(bench.consumer)  # on a busy machine, a start alone takes as long as a stall
        if (problem := bench.drain(stalled_seconds=_STALLED_SECONDS)) is None:
            break
        if bench.consumer.alive:
            outcome.problems.append(problem)
            bench.check(outcome)
        else:
            ended(bench, outcome)
        if outcome.problems:
            bench.give_up()
            return outcome
    return bench.recover(outcome)


def ended(bench: Bench, outcome: Outcome) -> None:
    """Check that the consumer ended with a clear line, and follow its advice."""
    consumer = bench.consumer
    outcome.problems += bench.unclear_end()
    if outcome.problems or consumer is None:
        return
    said = f"ended with {consumer.wait(0)}: {consumer.last_words()}"
    failed = consumer.said("failed")[-1].values
    told = "{message}\n{hint}".format_map(failed)
    outcome.notes.append(f"{said} Followed: {follow(bench, told)}")
    bench.consumer = None


def follow(bench: Bench, told: str) -> str:
    """Follow the first advice of an error; return it."""
    if statement := _STATEMENT.search(told):
        bench.run_program("tests.chaos.maintenance", "sql", statement[1])
        return statement[1]
    if command := _COMMAND.search(told):
        program, *arguments = shlex.split(command[1])
        if arguments == ["reset"]:  # "for the stream"
            arguments.append(STREAM)
        bench.run_program(program, *arguments)
        return " ".join([program, *arguments])
    return "start it again"
