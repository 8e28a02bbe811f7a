"""The tasks of a mode get messages in the order of their offsets: large ones do not jump ahead of small ones."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.consumer.sources.kafka.test_order import returned

from consumer.modes.kept import Keys, decide
from consumer.modes.tasks import Mask, Piece, Work, judge, write_kept
from consumer.sources.envelope import SMALL_BYTES
from consumer.sources.kafka.read import OffsetRange
from lakeproof.errors import UnavailableError
from lakeproof.kafka.modes import ModeName, mode_of
from lakeproof.settings import settings_of

Sizes = list[tuple[str, bool]]


def message(event_id: str, *, is_large: bool) -> bytes:
    found = {"eventId": event_id, "eventTime": "2024-01-01T00:00:00Z"}
    return json.dumps(found | ({"payload": "x" * SMALL_BYTES} if is_large else {})).encode()


def work_in(folder: Path) -> Work:
    own = {"LAKE_DEDUPE_PARQUET": str(folder / "kept"), "LAKE_DEDUPE_ASIDE": str(folder / "aside")}
    settings = settings_of({"LAKE_HOME": folder, "LAKE_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092", **own})
    mode = mode_of(ModeName.DEDUPE, settings)
    return Work(mode, 0, None, 2**62, settings.kafka, settings.limits, settings.s3)


def judged(work: Work, messages: Sizes, at_once: int) -> Piece:
    """Judge messages, of which the client returns `at_once` at a time."""
    values = [message(name, is_large=is_large) for name, is_large in messages]
    with returned(values, at_once):
        return judge(work, 0, [OffsetRange("incoming-events", 0, 0, len(values), 0)])


def kept_of(work: Work, piece: Piece, folder: Path) -> list[bool]:
    keys = Keys(folder, work.mode.watermark)
    kept = decide(piece.events["id"].combine_chunks(), keys, None)
    keys.close()
    return list(kept)


def written(folder: Path) -> list[int]:
    """Return the offsets of the events in the sink."""
    sources = pq.read_table(folder / "kept" / "part-0000000000-0000.parquet")["_source"].to_pylist()
    return [int(source.rpartition("/")[2]) for source in sources]


@pytest.mark.parametrize("at_once", [1, 2, 100])
@pytest.mark.parametrize("large", [(False, True), (True, False)])
def test_the_event_at_the_lower_offset_is_kept(tmp_path: Path, large: tuple[bool, bool], at_once: int) -> None:
    work = work_in(tmp_path)
    piece = judged(work, [("a", large[0]), ("a", large[1]), ("b", True)], at_once)
    kept = kept_of(work, piece, tmp_path / "keys")
    write_kept(work, [Mask.of(piece, kept)], piece)
    assert written(tmp_path) == [0, 2]


@given(
    messages=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=10),
    first=st.integers(1, 10),
    second=st.integers(1, 10),
)
def test_messages_that_are_read_again_have_the_same_mask(
    messages: Sizes, first: int, second: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("mode")
    work = work_in(folder)
    piece = judged(work, messages, first)
    mask = Mask.of(piece, kept_of(work, piece, folder / "keys"))
    write_kept(work, [mask], judged(work, messages, second))
    names = [name for name, _ in messages]
    assert written(folder) == [index for index, name in enumerate(names) if name not in names[:index]]


def test_as_many_other_messages_are_not_written(tmp_path: Path) -> None:
    """The mask is by position: it would keep one event twice, and lose another."""
    work = work_in(tmp_path)
    piece = judged(work, [("a", False), ("a", False), ("", False)], 100)
    mask = Mask.of(replace(piece, rows=None), np.array([True, False]))
    other = judged(work, [("a", False), ("", False), ("b", False)], 100)
    with pytest.raises(UnavailableError, match="changed while") as caught:
        write_kept(work, [mask], other)
    assert caught.value.hint == "Run the consumer again, to repeat the micro-batch."
    assert not (tmp_path / "kept").exists()
