"""A consumer that can be hurt: hooks are wrapped around its steps, and then its own command line runs.

Nothing in ``src/`` can be told to die; only a process that this module starts can.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from threading import local
from typing import Any

from sqlalchemy import Engine, event
from tests.chaos.mutants import Mutant, install, wrap
from tests.chaos.orders import Orders, Step
from tests.chaos.processes import groups_of, signal_groups

from consumer import cli
from consumer.iceberg import append, rewrite
from consumer.layers import base, rebuild
from consumer.layers.bronze import land, replay
from consumer.layers.gold import aggregate
from consumer.layers.silver import decide
from consumer.layers.sinks.topic import TopicSink
from consumer.maintenance import maintain
from lakeproof.state import lease
from lakeproof.state.breaker_log import BreakerLog
from lakeproof.state.schema import BREAKER_TRIPS
from lakeproof.tables.names import REBUILDING

ORDERS, LEASE_SECONDS, MUTANT, DRIVER = "CHAOS_ORDERS", "CHAOS_LEASE_SECONDS", "CHAOS_MUTANT", "CHAOS_DRIVER"
"""Environment variables: the file of orders; duration of a lease; the mutant; for workers, the id of the driver."""
MOST_LETTERS = "CHAOS_MOST_LETTERS"
"""Environment variable: the maximum number of dead letters in a micro-batch of a replay."""

_SENT = {"dead_letters": Step.DEAD_LETTERS_SENT, "silver": Step.SILVER_SENT, "gold": Step.GOLD_SENT}
_RECORDED = {
    "INSERT INTO": Step.PAUSING,
    "SET accepted_at": Step.ACCEPTING,
    "SET ended_at": Step.PAUSE_ENDING,
}


def main() -> None:
    """Run the consumer with hooks."""
    if seconds := os.environ.get(LEASE_SECONDS):
        lease.LEASE_SECONDS = float(seconds)
    if letters := os.environ.get(MOST_LETTERS):
        replay.MOST_LETTERS = int(letters)
    if mutant := os.environ.get(MUTANT):
        install(Mutant(mutant))
    os.environ[DRIVER] = str(os.getpid())
    _install_hooks(Orders(Path(os.environ[ORDERS])))
    cli.main()


def _install_hooks(orders: Orders) -> None:
    tables = local()  # the table that each query is committing to

    def reach(step: Step) -> None:
        orders.obey(step, lambda act: signal_groups(groups_of(os.getpid()), act.number))

    def between(before: Step | None, after: Step) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def around(real: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(real)
            def write(*arguments: Any) -> Any:
                if before:
                    reach(before)
                written = real(*arguments)
                reach(after)
                return written

            return write

        return around

    def around_append(real: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(real)
        def append_once(opened: append.OpenTable, *arguments: Any) -> bool:
            tables.name = opened.name
            done = real(opened, *arguments)
            reach(_steps_of(tables.name)[1])
            return done

        return append_once

    def around_commit(real: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(real)
        def commit(*arguments: Any) -> None:
            if name := getattr(tables, "name", None):  # not in a maintenance, which commits in a thread of its own
                reach(_steps_of(name)[0])
            real(*arguments)

        return commit

    def around_record(real: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(real)
        def record(sink: TopicSink, *arguments: Any) -> None:
            reach(_SENT[sink._followed.table.partition(".")[0]])
            real(sink, *arguments)

        return record

    wrap(land, "write_judged", between(Step.BEFORE_JUDGEMENT, Step.AFTER_JUDGEMENT))
    wrap(replay.ReplayLayer, "_work", between(Step.BEFORE_JUDGEMENT, Step.AFTER_JUDGEMENT))
    wrap(BreakerLog, "pause", between(None, Step.PAUSED))
    wrap(BreakerLog, "accept", between(None, Step.ACCEPTED))

    @event.listens_for(Engine, "after_cursor_execute")
    def executed(_connection: Any, _cursor: Any, statement: str, *_others: Any) -> None:
        for part, step in _RECORDED.items():
            if BREAKER_TRIPS.name in statement and part in statement and not statement.startswith("SELECT"):
                reach(step)  # nothing is committed yet

    for name in ("write_decided", "decide_in_tasks"):
        wrap(decide, name, between(None, Step.SILVER_DECIDED))
    wrap(rebuild, "replace_tables", between(Step.REBUILD_FILLED, None))
    wrap(aggregate, "write_windows", between(None, Step.GOLD_COMPUTED))
    wrap(base, "append_once", around_append)
    wrap(base, "upsert_once", around_append)
    wrap(append, "_commit", around_commit)
    wrap(TopicSink, "_record", around_record)
    wrap(rewrite, "_rewrite", between(Step.REWRITING, Step.REWRITTEN))
    wrap(rewrite, "_compare", between(None, Step.PROVEN))
    wrap(rewrite, "commit_prepared", between(Step.SWAPPING, Step.SWAPPED))
    wrap(maintain, "expire", between(Step.EXPIRING, Step.EXPIRED))


def _steps_of(table: str) -> tuple[Step, Step]:
    """Return the steps before and after the commit to a table, or to the table that will replace it."""
    namespace, _, name = table.partition(".")
    _, _, kind = name.partition(REBUILDING)[0].partition("_")
    return {
        ("dead_letters", "attempts"): (Step.ATTEMPTS_PREPARED, Step.ATTEMPTS_APPENDED),
        ("bronze", ""): (Step.BRONZE_PREPARED, Step.BRONZE_APPENDED),
        ("dead_letters", ""): (Step.DEAD_LETTERS_PREPARED, Step.DEAD_LETTERS_APPENDED),
        ("ledger", ""): (Step.LEDGER_PREPARED, Step.LEDGER_APPENDED),
        ("silver", "conflicts"): (Step.CONFLICTS_PREPARED, Step.CONFLICTS_APPENDED),
        ("silver", "late"): (Step.LATE_PREPARED, Step.LATE_APPENDED),
        ("ledger", "silver"): (Step.SILVER_LEDGER_PREPARED, Step.SILVER_LEDGER_APPENDED),
        ("silver", ""): (Step.SILVER_PREPARED, Step.SILVER_APPENDED),
        ("gold", "activity"): (Step.GOLD_PREPARED, Step.GOLD_UPSERTED),
    }[namespace, kind]


if __name__ == "__main__":
    main()
