"""The signals that ask a program to end."""

import signal

import pytest

from lakeproof.signals import ending_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_answered_inside_and_as_before_outside(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    answered: list[int] = []

    def leave() -> None:
        with ending_signals(lambda received, _frame: answered.append(received)):
            signal.raise_signal(number)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        leave()
    assert answered == [number]
    assert signal.getsignal(number) == before
