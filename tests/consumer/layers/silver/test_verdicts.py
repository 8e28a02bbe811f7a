"""Verdicts on Arrow rows, without Spark."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.consumer.layers.silver.model import Decided, Row
from tests.consumer.layers.silver.model import decide as decide_by_model

from consumer.layers.silver.verdicts import (
    COMPARED,
    COUNTS_AS,
    EVENT_TIME,
    IN_SILVER,
    KEY,
    Lost,
    Micros,
    decide,
    watermarks,
)
from lakeproof.tables.names import CONTENT_HASH, MICRO_BATCH_ID, POSITION, SOURCE

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(time: datetime | None) -> Micros | None:
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def narrow(rows: list[Row], in_silver: bool = False) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                KEY: row.key,
                MICRO_BATCH_ID: IN_SILVER if in_silver else row.micro_batch,
                SOURCE: row.source,
                POSITION: row.position,
                EVENT_TIME: micros(row.event_time),
                COUNTS_AS: None if in_silver or not row.event_time else micros(min(row.event_time, row.ingested_at)),
                CONTENT_HASH: f"{row.event_time} {row.content}".encode(),
            }
            for row in rows
        ],
        schema=COMPARED,
    )


@st.composite
def streams(draw: st.DrawFn) -> list[Row]:
    """Draw rows with few keys, whose event times are within a few hours."""
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=6))
    hours = st.integers(0, 12)
    return [
        Row(
            number,
            draw(st.sampled_from(["a", "b"])) + str(number),
            position,
            draw(st.sampled_from(["k", "l", "m"])),
            EPOCH + timedelta(hours=draw(hours)),
            draw(st.sampled_from(["x", "y"])),
            EPOCH + timedelta(hours=draw(st.sampled_from([5, 24]))),
        )
        for number, size in enumerate(sizes)
        for position in range(size)
    ]


def decided(rows: list[Row], length: timedelta | None, cuts: set[int]) -> Decided:
    """Decide rows in ranges that end before some micro-batches, each with the rows in silver at that time."""
    found: Decided = {}
    watermark: Micros | None = None
    silver: list[Row] = []
    last = max((row.micro_batch for row in rows), default=-1) + 1
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < last), last]
    for start, end in pairwise(edges):
        taken = [row for row in rows if start <= row.micro_batch < end]
        if not taken:
            continue
        horizons: dict[int, Micros | None] = {}
        newest = watermarks(narrow(taken))
        for number in sorted({row.micro_batch for row in taken}):
            past = None if watermark is None or length is None else watermark - length // timedelta(microseconds=1)
            horizons[number] = past
            watermark = max((time for time in (watermark, newest.get(number)) if time is not None), default=None)
        oldest = horizons[min(horizons)]
        keys = {row.key for row in taken}
        seen = [
            row for row in silver if row.key in keys and (oldest is None or (micros(row.event_time) or 0) >= oldest)
        ]
        lost = decide(pa.concat_tables([narrow(taken), narrow(seen, in_silver=True)]), horizons)
        for number, row in enumerate(taken):
            verdict = lost.get(number)
            found[row.place] = (str(verdict.verdict), verdict.winner) if verdict else ("kept", None)
            if not verdict:
                silver.append(row)
    return found


@given(streams(), st.sampled_from([None, timedelta(0), timedelta(hours=3)]), st.sets(st.integers(1, 5)))
def test_they_are_those_of_the_model_however_micro_batches_are_put_together(
    rows: list[Row], length: timedelta | None, cuts: set[int]
) -> None:
    assert decided(rows, length, cuts) == decide_by_model(rows, length)


def row(at: int | None, number: int = 0, position: int = 0, key: str = "k", content: bytes = b"x") -> dict[str, object]:
    values = (key, number, "s", position, at, at, content)
    return dict(zip(COMPARED.names, values, strict=True))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row(None), row(None, position=1)], {1: Lost("duplicates", ("s", 0))}),
        ([row(None), row(9, position=1, content=b"y")], {1: Lost("conflicts", ("s", 0))}),
        ([row(9), row(None, position=1, content=b"y")], {0: Lost("late", None)}),
        ([row(9)], {0: Lost("late", None)}),
        ([row(None)], {}),
        ([row(10)], {}),
        ([row(10, IN_SILVER, 7), row(10)], {1: Lost("duplicates", ("s", 7))}),
    ],
    ids=[
        "neither has an event time",
        "the kept one has no event time",
        "late, then kept",
        "late",
        "no event time",
        "at the horizon",
        "silver has it",
    ],
)
def test_rows_without_event_time_and_at_the_horizon(rows: list[dict[str, object]], expected: dict[int, Lost]) -> None:
    assert decide(pa.Table.from_pylist(rows, schema=COMPARED), {0: 10}) == expected


def test_the_watermark_is_of_event_times_that_have_come() -> None:
    times = [(0, 3), (1, 5), (1, 4), (2, None), (3, None), (3, 2), (IN_SILVER, None)]
    rows = pa.Table.from_pylist([row(at, number) for number, at in times], schema=COMPARED)
    assert watermarks(rows) == {0: 3, 1: 5, 3: 2}
