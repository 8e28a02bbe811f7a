"""The judge handles a failure of the native judge, which should not occur."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lakeproof.judge.test_native import judged

from lakeproof.contracts import load_contract
from lakeproof.judge.batch import MAX_UNITS, Judge
from lakeproof.judge.native import BrokenError, Chunk, NativeJudge

EVENTS = load_contract(Path(__file__).parents[3] / "contracts", "events")
RECORD = b'{"user_id":"u","event_id":"%d","event_timestamp":"2026-11-21T12:30:00Z","event_type":"page_view"}'
BATCHES = [
    b"[" + b",".join(RECORD % number for number in range(MAX_UNITS + 500)) + b",{}]",
    b"[{]",
    RECORD % 0,
    b"{}",
]
pytestmark = pytest.mark.usefixtures("native")


@pytest.mark.parametrize("chunks", [0, 1])
def test_what_it_left_is_judged_by_python(monkeypatch: pytest.MonkeyPatch, chunks: int) -> None:
    real = NativeJudge.judge

    def broken(self: NativeJudge, *arguments: Any) -> Iterator[Chunk]:
        judging = real(self, *arguments)
        for _ in range(chunks):
            yield next(judging)
        raise BrokenError("the native judge panicked")

    expected = judged(Judge(EVENTS, choice="python"), BATCHES)
    monkeypatch.setattr(NativeJudge, "judge", broken)
    assert judged(Judge(EVENTS), BATCHES) == expected


def test_many_batches_that_cannot_be_split_are_judged_together() -> None:
    batches = [b"[" + RECORD[:20]] * 3_000 + [RECORD % 1]
    (found,) = Judge(EVENTS).judge_together(batches)
    assert len(found.judged.bad) == 3_000
    assert found.good_of.tolist() == [3_000]
