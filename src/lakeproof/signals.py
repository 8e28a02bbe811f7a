"""Signals that ask a program to end."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_handled = Counter[str]()  # number of contexts in which signals were handled


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
    # Not before: `asked_to_end` would take a signal in between for one that this context handles.
    _handled["contexts"] += 1
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def asked_to_end() -> Iterator[None]:
    """Raise :class:`AskedToEnd` at the first signal; exit immediately at the second.

    Work begins with a context of its own that handles signals. When it is over, the program ends anyway, and the first
    signal changes nothing.
    """
    asked = False

    def has_begun() -> bool:
        return _handled["contexts"] > before

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            end_at_once(number)
        asked = True
        if not has_begun():
            raise AskedToEnd

    with ending_signals(handle):
        before = _handled["contexts"]
        try:
            yield
        except BaseException:
            if asked and not has_begun():  # a library in which the exception was raised may have replaced it
                raise AskedToEnd from None
            raise


def end_on_interrupt() -> None:
    """Let Ctrl-C end a program silently until it handles signals itself; one that is ignored stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, _frame: end_at_once(number))


def end_at_once(number: int) -> NoReturn:
    """Exit immediately, with the exit code that a shell uses for the signal."""
    _show_cursor()
    os._exit(128 + number)


def _show_cursor() -> None:
    """Show the cursor of the terminal, which a progress bar may have hidden."""
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return
    for descriptor in (1, 2):
        with suppress(OSError):
            if os.isatty(descriptor):
                # Not by way of Rich, whose lock the interrupted thread may hold.
                os.write(descriptor, b"\x1b[?25h")
                return
