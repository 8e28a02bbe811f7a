"""When a product is taken, with plain functions instead of tables."""

from typing import Any

import pytest

from consumer.bulletin import Bulletin
from consumer.queries import gold
from consumer.queries.gold import PATIENCE_SECONDS, patiently

SPARK: Any = None


def test_while_silver_has_a_backlog_windows_are_computed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, backlog, taken = [0.0], [True], []
    monkeypatch.setattr(gold, "monotonic", lambda: now[0])

    def take(_: object) -> bool:
        taken.append(now[0])
        return True

    patient = patiently(take, lambda: backlog[0])

    def look(*seconds: float) -> None:
        for now[0] in seconds:
            assert patient(SPARK) == (now[0] in taken)

    most = PATIENCE_SECONDS
    look(1, most - 1, most, most + 1, 2 * most - 1, 2 * most)
    backlog[0] = False
    look(2 * most + 1, 2 * most + 2)
    assert taken == [most, 2 * most, 2 * most + 1, 2 * most + 2]


def test_a_backlog_is_known_by_the_query_that_has_it(tmp_path: Any) -> None:
    bulletin = Bulletin(tmp_path)
    assert not bulletin.has_backlog("silver-a")
    for _ in range(2):
        bulletin.note_backlog("silver-a", there_is=True)
    assert bulletin.has_backlog("silver-a")
    assert not bulletin.has_backlog("silver-b")
    for _ in range(2):
        bulletin.note_backlog("silver-a", there_is=False)
    assert not bulletin.has_backlog("silver-a")
