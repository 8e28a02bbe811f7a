"""Scenarios in which a mode on Kafka alone is killed at random moments: the result equals the model."""

import io
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Message
from tests.chaos.bench import PROGRAM_SECONDS, STRIKE_SECONDS, Bench
from tests.chaos.grid import Outcome
from tests.chaos.processes import Process, wait_until
from tests.consumer.modes.model import Expected, event, expected
from tests.messages import received, send

from lakeproof.kafka.modes import ModeName
from lakeproof.storage import open_storage

WATERMARK, WINDOW = timedelta(minutes=10), timedelta(minutes=5)
_EVENTS_PER_KILL = 80
_MOST_OFFSETS = 20
_COPY_LOST_EVERY = 5
_WITHIN_A_START = 0.25
_DIGITS = 19
Windows = dict[tuple[str, datetime], tuple[int, Decimal, Decimal, Decimal]]


def in_order(seed: int, length: int) -> list[bytes]:
    """Return messages, some of them duplicate or bad, none late, however they are cut into micro-batches."""
    chosen = random.Random(seed)
    found: list[bytes] = []
    for number in range(length):
        dice = chosen.random()
        if found and dice < 0.15:
            found.append(chosen.choice(found[-20:]))
        elif dice < 0.2:
            found.append(chosen.choice([b"broken", b"{}", b'{"eventId":null}']))
        else:
            seconds = number * 10 - chosen.choice([0, 5, 60])
            amount = chosen.randint(-99, 999) / 100
            found.append(event(number, seconds, userId=chosen.choice("abc"), amount=amount))
    return found


def at_random(name: ModeName, kills: int) -> Callable[[Bench], Outcome]:
    """A mode is killed again and again while events arrive; sometimes its copy of the ids is lost, too."""

    def run(bench: Bench) -> Outcome:
        run = _Run(bench, name, kills)
        outcome = Outcome()
        for number in range(kills):
            run.hurt(number, outcome)
        if (code := run.finish()) != 0:
            outcome.problems.append(f"at the end, it ended with {code}")
        else:
            run.check(outcome)
        bench.give_up()
        return outcome

    return run


class _Run:
    """One mode, with its topics, folders and events."""

    def __init__(self, bench: Bench, name: ModeName, kills: int) -> None:
        self._bench = bench
        self._name = name
        self._lake = bench.new_lake()
        self._broker = bench.broker
        self._chance = random.Random(bench.options.seed)
        self._topic, self._sink = bench.broker.new_topic(), bench.broker.new_topic()
        root = self._lake.settings.catalog.warehouse_uri.removesuffix("/warehouse")
        self._out, self._aside = f"{root}/out", f"{root}/aside"
        self._stream = in_order(bench.options.seed, kills * _EVENTS_PER_KILL)
        self._sent = 0

    def hurt(self, number: int, outcome: Outcome) -> None:
        """Start the mode, send events, and kill it at a random moment."""
        if number % _COPY_LOST_EVERY == _COPY_LOST_EVERY - 1:
            shutil.rmtree(Path(self._lake.settings.home) / "modes", ignore_errors=True)
        send(self._broker, self._topic, self._next(number, _MOST_OFFSETS * 2))
        running = self._start("--trigger", "200 milliseconds")
        if self._chance.random() < _WITHIN_A_START:
            time.sleep(self._chance.uniform(0, 10))
        else:
            wait_until(lambda: bool(running.said("micro-batch")) or not running.alive, STRIKE_SECONDS)
            until = time.monotonic() + self._chance.uniform(0, 1)
            while time.monotonic() < until:
                send(self._broker, self._topic, self._next(number, 5))
                time.sleep(0.05)
        if not running.alive:
            outcome.problems.append(f"it ended by itself: {running.last_words()}")
        running.end_all()
        outcome.hits += 1

    def _next(self, number: int, count: int) -> list[bytes]:
        """Return the next `count` events, up to the share of this kill."""
        begin = self._sent
        self._sent = min(begin + count, (number + 1) * _EVENTS_PER_KILL)
        return self._stream[begin : self._sent]

    def finish(self) -> int | None:
        """Send the remaining events, and let the mode read everything."""
        send(self._broker, self._topic, self._stream[self._sent :])
        return self._start("--available-now").wait(PROGRAM_SECONDS)

    def check(self, outcome: Outcome) -> None:
        """Compare files and messages with the model."""
        windows = self._name is ModeName.WINDOWS
        model = expected(self._stream, len(self._stream), WATERMARK, WINDOW if windows else None)
        rows = list(self._rows(self._out))
        sent = received(self._broker, self._sink)
        ids = [dict(message.headers() or [])["lakeproof-id"] for message in sent]
        if windows:
            _check_windows(rows, sent, model, outcome)
        else:
            _check_events([_offset(row["_source"]) for row in rows], ids, model, outcome)
        aside = sorted(_offset(row["_source"]) for row in self._rows(self._aside))
        if aside != sorted(model.bad):
            outcome.problems.append(f"{len(aside)} messages are aside, not {len(model.bad)}")
        outcome.notes.append(
            f"{len(self._stream)} messages, {len(rows)} rows in files, {len(set(ids))} ids in the topic, "
            f"{len(ids) - len(set(ids))} of them again"
        )

    def _rows(self, folder: str) -> Iterator[dict[str, Any]]:
        storage = open_storage(folder, self._lake.settings.s3)
        for file in storage.list():
            if file.uri.endswith(".parquet"):
                yield from pq.read_table(io.BytesIO(storage.read(file.uri))).to_pylist()

    def _start(self, *arguments: str) -> Process:
        fields = {
            "topic": self._topic,
            "kafka": self._sink,
            "parquet": self._out,
            "aside": self._aside,
            "max_offsets": _MOST_OFFSETS,
            "watermark": "10 minutes",
            **({"window": "5 minutes"} if self._name is ModeName.WINDOWS else {}),
        }
        changes = [part for field, value in fields.items() for part in (f"--{field.replace('_', '-')}", str(value))]
        return self._bench.start_program("consumer", "run", self._name, *arguments, *changes)


def _check_events(offsets: list[int], ids: list[Any], model: Expected, outcome: Outcome) -> None:
    outcome.lost += len(set(model.kept) - set(offsets))
    outcome.doubled += len(offsets) - len(set(offsets)) + len(set(offsets) - set(model.kept))
    if {_offset(found.decode()) for found in ids} != set(model.kept):
        outcome.problems.append("the ids in the topic differ from the model's")


def _check_windows(rows: list[dict[str, Any]], sent: list[Message], model: Expected, outcome: Outcome) -> None:
    found = {(row["user_id"], row["window_start"].astimezone(UTC)): _summary(row) for row in rows}
    outcome.doubled += len(rows) - len(found)
    outcome.lost += len(model.final.keys() - found.keys())
    if found != model.final:
        outcome.problems.append("the windows in files differ from the model's")
    if newest(sent) != model.newest:
        outcome.problems.append("the newest windows in the topic differ from the model's")


def newest(messages: list[Message]) -> Windows:
    """Return the newest message of each window."""
    found = {}
    for message in messages:
        value = json.loads(message.value() or b"", parse_float=Decimal, parse_int=Decimal)
        amounts = (value["amountSum"], value["amountMin"], value["amountMax"])
        found[value["userId"], datetime.fromisoformat(value["windowStart"])] = (int(value["eventCount"]), *amounts)
    return found


def _summary(row: dict[str, Any]) -> tuple[int, Decimal, Decimal, Decimal]:
    return row["event_count"], row["amount_sum"], row["amount_min"], row["amount_max"]


def _offset(source: str) -> int:
    return int(source[-_DIGITS:])
