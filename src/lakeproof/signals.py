"""Signals that ask a program to end."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class AskedToEnd(BaseException):
    """A signal asked the program to end before it started any work."""


@contextmanager
def ending_signals(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP with `handle` within the context, in the main thread.

    A SIGHUP that is ignored (``nohup``) stays ignored.
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
    """Raise :class:`AskedToEnd` at the first signal; exit immediately at the second."""
    asked = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            end_at_once(number)
        asked = True
        raise AskedToEnd

    with ending_signals(handle):
        try:
            yield
        except BaseException:
            if asked:  # a library in which the exception was raised may have replaced it
                raise AskedToEnd from None
            raise


def end_at_once(number: int) -> NoReturn:
    """Exit immediately, with the exit code that a shell uses for the signal."""
    os._exit(128 + number)
