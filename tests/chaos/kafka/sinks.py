"""Scenarios in which a consumer is killed while it sends its tables to topics.

A topic must get every row, may get rows again, and never has a row that its table lacks.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from confluent_kafka import KafkaException, Message
from tests.chaos.bench import Bench
from tests.chaos.grid import Outcome
from tests.chaos.kafka.lake import TopicLake
from tests.chaos.lake import PRODUCT, STREAM, TABLES
from tests.chaos.orders import Step
from tests.chaos.processes import wait_until

from lakeproof.tables.names import gold_table, silver_tables

APPENDED = (TABLES.dead_letters, silver_tables(STREAM).kept)
_SEND_SECONDS = 60.0
KeyT = TypeVar("KeyT")


@dataclass(frozen=True)
class Shown:
    """Comparison of a topic with its table.

    Parameters
    ----------
    missing
        Rows that no message has.
    ahead
        Messages whose row is not in the table.
    again
        Messages that were sent before.
    """

    missing: int
    ahead: int
    again: int


def compare(messages: Counter[KeyT], rows: Mapping[KeyT, int]) -> Shown:
    """Compare the messages of a topic with the rows of a table that only grows, each by its origin."""
    return Shown(
        missing=len(rows.keys() - messages.keys()),
        ahead=len(messages.keys() - rows.keys()),
        again=messages.total() - len(messages),
    )


def at(step: Step) -> Callable[[Bench], Outcome]:
    """The consumer is killed at a step of a sink, before the sent messages are recorded."""

    def run(bench: Bench) -> Outcome:
        lake = _lake(bench)
        bench.kill_at(step)
        outcome = Outcome(hits=1)
        _check_not_ahead(lake, outcome)
        return _check(bench, lake, bench.recover(outcome))

    return run


def at_random(kills: int) -> Callable[[Bench], Outcome]:
    """The consumer is killed again and again while messages arrive and are sent."""

    def run(bench: Bench) -> Outcome:
        chance = random.Random(bench.options.seed)
        lake = _lake(bench)
        bench.ready()
        outcome = Outcome()
        for _ in range(kills):
            with lake.producing(every=0.2):
                time.sleep(chance.uniform(0, 3))
            bench.kill(outcome)
            _check_not_ahead(lake, outcome)
            outcome.hits += 1
            bench.consumer = bench.start()
            if problem := bench.drain():
                outcome.problems.append(problem)
                break
        return _check(bench, lake, bench.recover(outcome))

    return run


def _lake(bench: Bench) -> TopicLake:
    """Return a lake with sinks, in which data has landed."""
    if not (bench.has_lake and isinstance(bench.lake, TopicLake) and bench.lake.has_sinks):
        bench.new_lake(sinks=True).land(4)
    lake = bench.lake
    assert isinstance(lake, TopicLake)
    return lake


def _check(bench: Bench, lake: TopicLake, outcome: Outcome) -> Outcome:
    """Wait until the topics are complete, and note repeated messages."""
    if outcome.problems:
        return outcome
    wait_until(lambda: _complete(lake), _SEND_SECONDS, every=0.5)
    again = {}
    for table in APPENDED:
        shown = compare(_by_row(lake.sent_on(table)), lake.rows_of(table))
        if shown.missing or shown.ahead:
            outcome.problems.append(f"{table}: {shown.missing} rows were not sent, {shown.ahead} messages have no row")
        again[table] = shown.again
    windows = lake.sent_on(gold_table(PRODUCT))
    again[gold_table(PRODUCT)] = len(windows) - len({_header(message, "id") for message in windows})
    if newest(windows) != lake.windows():
        outcome.problems.append(f"{gold_table(PRODUCT)}: the newest messages differ from the table")
    outcome.notes.append("sent again: " + ", ".join(f"{count} of {table}" for table, count in again.items()))
    if outcome.problems:
        bench.give_up()
    return outcome


def _complete(lake: TopicLake) -> bool:
    try:
        shown = [compare(_by_row(lake.sent_on(table)), lake.rows_of(table)).missing for table in APPENDED]
        return not any(shown) and newest(lake.sent_on(gold_table(PRODUCT))) == lake.windows()
    except (KafkaException, KeyError):  # no topic yet
        return False


def _check_not_ahead(lake: TopicLake, outcome: Outcome) -> None:
    """Check that no topic has a row that its table lacks; the topic is read first."""
    for table in APPENDED:
        try:
            messages = _by_row(lake.sent_on(table))
        except (KafkaException, KeyError):
            continue
        if ahead := compare(messages, lake.rows_of(table)).ahead:
            outcome.problems.append(f"{table}: {ahead} messages are ahead of the table")


def _by_row(messages: list[Message]) -> Counter[tuple[str, int]]:
    return Counter((_header(message, "source"), int(_header(message, "position"))) for message in messages)


def newest(messages: list[Message]) -> dict[tuple[str, datetime], int]:
    """Return the number of events in each window, by its newest message."""
    found = {}
    for message in messages:
        value = json.loads(message.value() or b"")
        found[value["user_id"], datetime.fromisoformat(value["window_start"])] = value["event_count"]
    return found


def _header(message: Message, name: str) -> str:
    value = dict(message.headers() or [])[f"lakeproof-{name}"]
    return value.decode() if isinstance(value, bytes) else str(value)
