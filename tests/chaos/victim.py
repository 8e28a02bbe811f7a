"""The consumer, made to be hurt: hooks are wrapped around its steps, and then its own command line runs.

Nothing in ``src/`` can be told to die; only a process that is started as this module can.
"""

import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.mutants import Mutant, install, wrap
from tests.chaos.orders import Act, Orders, Step
from tests.chaos.processes import groups_of, signal_groups

from consumer import cli
from consumer.bronze import micro_batches
from consumer.commit import append
from lakeproof.state import lease

ORDERS, LEASE_SECONDS, MUTANT = "CHAOS_ORDERS", "CHAOS_LEASE_SECONDS", "CHAOS_MUTANT"
"""Environment variables: the file of orders; how long a lease lasts; what to break."""

_STRIKES = {Act.KILL: signal.SIGKILL, Act.SUSPEND: signal.SIGSTOP}


def main() -> None:
    """Run the consumer with hooks."""
    if seconds := os.environ.get(LEASE_SECONDS):
        lease.LEASE_SECONDS = float(seconds)
    if mutant := os.environ.get(MUTANT):
        install(Mutant(mutant))
    _install_hooks(Orders(Path(os.environ[ORDERS])))
    cli.main()


def _install_hooks(orders: Orders) -> None:
    table = ""  # that is being appended to

    def reach(step: Step) -> None:
        orders.obey(step, lambda act: signal_groups(groups_of(os.getpid()), _STRIKES[act]))

    def around_judgement(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def write_judged(*arguments: Any) -> Any:
            reach(Step.BEFORE_JUDGEMENT)
            written = real(*arguments)
            reach(Step.AFTER_JUDGEMENT)
            return written

        return write_judged

    def around_append(real: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(real)
        def append_once(opened: append.OpenTable, *arguments: Any) -> bool:
            nonlocal table
            table = opened.name
            done = real(opened, *arguments)
            reach(_of(table, Step.BRONZE_APPENDED, Step.DEAD_LETTERS_APPENDED, Step.LEDGER_APPENDED))
            return done

        return append_once

    def around_commit(real: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(real)
        def commit(*arguments: Any) -> None:
            reach(_of(table, Step.BRONZE_PREPARED, Step.DEAD_LETTERS_PREPARED, Step.LEDGER_PREPARED))
            real(*arguments)

        return commit

    wrap(micro_batches, "write_judged", around_judgement)
    wrap(micro_batches, "append_once", around_append)
    wrap(append, "_commit", around_commit)


def _of(table: str, bronze: Step, dead_letters: Step, ledger: Step) -> Step:
    """The step that belongs to a table."""
    return {"bronze": bronze, "dead_letters": dead_letters, "ledger": ledger}[table.partition(".")[0]]


if __name__ == "__main__":
    main()
