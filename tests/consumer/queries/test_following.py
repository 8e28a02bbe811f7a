"""A query that follows tables, with a plain function as its work."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer.queries.bulletin import Bulletin
from consumer.queries.following import Following


class Work:
    """A number of items to take."""

    def __init__(self, left: int = 0) -> None:
        self.left = left
        self.taken = 0
        self.gate = threading.Event()
        self.gate.set()
        self.held = threading.Event()

    def take(self) -> bool:
        left = self.left  # what is new while the gate is closed is for the next look
        while not self.gate.wait(0.01):
            self.held.set()
        if left == 0:
            return False
        if left < 0:
            raise ValueError("cannot be taken")
        self.left -= 1
        self.taken += 1
        return True


@pytest.fixture
def work() -> Work:
    return Work(3)


@pytest.fixture
def bulletin() -> Bulletin:
    return Bulletin()


def following_of(bulletin: Bulletin, take: Callable[[], bool], every: float, **more: Any) -> Following:
    return Following("test", take, every, lambda: bulletin.is_stopping, **more)


@pytest.fixture
def following(work: Work, bulletin: Bulletin) -> Iterator[Following]:
    query = following_of(bulletin, work.take, 0.01)
    yield query
    work.gate.set()
    query.stop()
    assert query.has_ended


def test_it_takes_all_that_is_there(work: Work, following: Following) -> None:
    following.drain()
    assert work.taken == 3
    work.left = 2
    following.drain()
    assert work.taken == 5
    assert following.failure() is None


def test_it_can_wait_after_it_took_something_too(work: Work, bulletin: Bulletin) -> None:
    query = following_of(bulletin, work.take, 600, at_once=False)
    try:
        while not work.taken:
            time.sleep(0.01)
        time.sleep(0.1)
        assert work.taken == 1
    finally:
        query.stop()


def test_it_looks_at_once_when_there_is_news(bulletin: Bulletin) -> None:
    work = Work()
    query = following_of(bulletin, work.take, 600, news=lambda: bulletin.progress("before"))
    try:
        query.drain()
        work.left = 1
        bulletin.note_progress("another")
        time.sleep(0.2)
        assert not work.taken
        for number in (1, 2):
            work.left = 1
            bulletin.note_progress("before")
            end = time.monotonic() + 30
            while work.taken < number and time.monotonic() < end:
                time.sleep(0.01)
            assert work.taken == number
    finally:
        query.stop()


def test_news_during_a_look_is_not_missed(bulletin: Bulletin) -> None:
    looks = [0]

    def take() -> bool:
        looks[0] += 1
        if looks[0] == 1:
            bulletin.note_progress("before")  # too late for this look
        return False

    query = following_of(bulletin, take, 600, news=lambda: bulletin.progress("before"))
    try:
        end = time.monotonic() + 30
        while looks[0] < 2 and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.2)
        assert looks == [2]
    finally:
        query.stop()


def test_a_look_that_began_before_does_not_count(work: Work, following: Following) -> None:
    following.drain()
    work.gate.clear()
    assert work.held.wait(120)  # it looks, and has seen nothing
    waiting = threading.Thread(target=following.drain, daemon=True)
    waiting.start()
    time.sleep(0.1)
    work.left = 1
    work.gate.set()
    waiting.join(120)
    assert not waiting.is_alive()
    assert work.taken == 4


def test_a_drain_during_a_look_that_takes_something_does_not_wait_for_the_trigger(
    work: Work, bulletin: Bulletin
) -> None:
    work.gate.clear()
    query = following_of(bulletin, work.take, 600)
    waiting = threading.Thread(target=query.drain, daemon=True)
    try:
        assert work.held.wait(120)  # it is within its first look
        waiting.start()
        time.sleep(0.1)
        work.gate.set()
        waiting.join(60)
        assert not waiting.is_alive()
        assert work.taken == 3
    finally:
        query.stop()


@pytest.mark.parametrize("items", [0, 2], ids=["found nothing", "took something"])
def test_a_drain_does_not_wait_for_the_trigger_of_a_query_that_keeps_it(bulletin: Bulletin, items: int) -> None:
    work = Work(items)
    query = following_of(bulletin, work.take, 600, at_once=False)
    waiting = threading.Thread(target=query.drain, daemon=True)
    try:
        time.sleep(0.1)  # it waits for its second look
        waiting.start()
        waiting.join(60)
        assert not waiting.is_alive()
        assert work.taken == items
        # Then, it keeps its trigger again.
        work.left = 1
        time.sleep(0.2)
        assert work.left == 1
    finally:
        query.stop()


def test_a_signal_ends_a_drain_that_always_finds_more(bulletin: Bulletin) -> None:
    looks = threading.Semaphore(0)

    def take() -> bool:
        looks.release()
        time.sleep(0.01)
        return True

    query = following_of(bulletin, take, 600, at_once=False)
    waiting = threading.Thread(target=query.drain, daemon=True)
    try:
        waiting.start()
        for _ in range(5):
            assert looks.acquire(timeout=60)
        assert waiting.is_alive()
        bulletin.stop()
        waiting.join(60)
        assert not waiting.is_alive()
    finally:
        query.stop()


def test_it_takes_nothing_more_when_it_shall_stop(work: Work, following: Following, bulletin: Bulletin) -> None:
    following.drain()
    bulletin.stop()
    following.drain()  # a look that began before may not have seen it
    work.left = 1
    following.drain()
    assert work.taken == 3
    assert not following.has_ended
    assert not following.is_busy


def test_it_says_what_it_failed_with(work: Work, following: Following) -> None:
    work.left = -1
    with pytest.raises(ValueError, match="cannot be taken"):
        following.drain()
    assert isinstance(following.failure(), ValueError)
    following.stop()
    assert following.has_ended
