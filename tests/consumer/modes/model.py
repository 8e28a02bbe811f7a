"""Expected results of the modes in plain Python, and random streams."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass
class Expected:
    """Results of a model; numbers are positions in the stream."""

    kept: list[int] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    final: dict[tuple[str, datetime], tuple[int, Decimal, Decimal, Decimal]] = field(default_factory=dict)
    newest: dict[tuple[str, datetime], tuple[int, Decimal, Decimal, Decimal]] = field(default_factory=dict)


def expected(stream: Sequence[bytes], at_once: int, watermark: timedelta, window: timedelta | None = None) -> Expected:
    """Return the results for a stream read in micro-batches of `at_once` messages, with windows if `window` is set."""
    found = Expected()
    kept_at: dict[str, datetime] = {}
    events: dict[tuple[str, datetime], list[Decimal]] = {}
    newest: datetime | None = None
    for begin in range(0, len(stream), at_once):
        late_before = newest - watermark if newest else None
        for number in range(begin, min(begin + at_once, len(stream))):
            try:
                fields = json.loads(stream[number], parse_float=Decimal, parse_int=Decimal)
                key, time = fields["eventId"], datetime.fromisoformat(fields["eventTime"])
                user, amount = (fields["userId"], 0 + fields["amount"]) if window else ("", Decimal())
            except (ValueError, KeyError, TypeError):
                found.bad.append(number)
                continue
            newest = max(newest or time, time)
            if late_before and time < late_before:
                found.late.append(number)
            elif key in kept_at and (late_before is None or kept_at[key] >= late_before - watermark):
                found.duplicates.append(number)
            else:
                found.kept.append(number)
                kept_at[key] = time
                if window:
                    start = START + (time - START) // window * window
                    events.setdefault((user, start), []).append(amount)
        if newest and window:
            for place, amounts in events.items():
                if place[1] + window <= newest - watermark:
                    found.final[place] = summary(amounts)
    found.newest = {place: summary(amounts) for place, amounts in events.items()}
    return found


def summary(amounts: list[Decimal]) -> tuple[int, Decimal, Decimal, Decimal]:
    return len(amounts), sum(amounts, Decimal()), min(amounts), max(amounts)


def random_stream(seed: int, length: int) -> list[bytes]:
    """Return messages roughly in the order of their times, some late, duplicate or broken."""
    chosen = random.Random(seed)
    found: list[bytes] = []
    for number in range(length):
        dice = chosen.random()
        if found and dice < 0.15:
            found.append(chosen.choice(found))
        elif dice < 0.2:
            found.append(chosen.choice([b"broken", b"{}", b'{"eventId":null}', event(number, 0, amount="1")]))
        else:
            seconds = number * 20 - chosen.choice([0, 5, 60, 60, 300, 3_000])
            found.append(event(number, seconds, userId=chosen.choice("abc"), amount=chosen.randint(-99, 999) / 100))
    return found


def event(number: int, seconds: float, **changes: Any) -> bytes:
    """Return a message that both modes accept."""
    time = (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    fields = {"eventId": f"e{number}", "eventTime": time, "userId": "u", "amount": 1.25, "eventType": "buy"}
    return json.dumps(fields | changes).encode()
