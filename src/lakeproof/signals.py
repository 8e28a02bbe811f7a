"""The signals that ask a program to end."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ending_signals(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let `handle` answer SIGINT and SIGTERM for the time of the context; what answered before comes back then.

    To be entered by the main thread, as Python asks of whoever sets signal handlers.
    """
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
