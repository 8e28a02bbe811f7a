"""The signals that ask a program to end."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class AskedToEnd(BaseException):
    """A signal asks the program to end, and nothing has begun that would have to be finished."""


@contextmanager
def ending_signals(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let `handle` answer SIGINT, SIGTERM and SIGHUP for the time of the context.

    What answered before comes back then. A SIGHUP that is ignored (``nohup``) stays so. To be entered by the main
    thread, as Python asks of whoever sets signal handlers.
    """
    before = {
        number: signal.signal(number, handle)
        for number in _ENDING
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def asked_to_end() -> Iterator[None]:
    """Let the first of these signals raise :class:`AskedToEnd`, and the second one end the program at once."""
    asked = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            end_at_once(number)
        asked = True
        raise AskedToEnd

    with ending_signals(handle):
        yield


def end_at_once(number: int) -> NoReturn:
    """End the program without finishing anything, with the exit code that a shell has for that signal."""
    os._exit(128 + number)
