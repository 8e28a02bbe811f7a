"""Signals that ask a program to end."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lakeproof.signals import AskedToEnd, asked_to_end, ending_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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


def test_a_hangup_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as with nohup
    try:
        with ending_signals(lambda *_: pytest.fail("answered")):
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_signal_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("lakeproof.signals.end_at_once", ended.append)

    def twice() -> None:
        with asked_to_end():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                with pytest.raises(AskedToEnd):  # only because this test lets it return
                    signal.raise_signal(signal.SIGINT)

    with pytest.raises(AskedToEnd):
        twice()
    assert ended == [signal.SIGINT]


def test_an_error_that_replaces_the_exception_of_a_signal_ends_the_same() -> None:
    def within_a_library() -> None:
        with asked_to_end():
            try:
                signal.raise_signal(signal.SIGTERM)
            except AskedToEnd:
                raise ImportError from None

    with pytest.raises(AskedToEnd):
        within_a_library()


def test_an_error_without_a_signal_stays() -> None:
    with pytest.raises(ImportError), asked_to_end():
        raise ImportError


def test_a_signal_after_the_work_does_not_hide_its_error() -> None:
    def work() -> None:
        with asked_to_end():
            try:
                with ending_signals(lambda *_: None):
                    raise LookupError
            finally:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(LookupError):
        work()


SCRIPTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_interrupt_during_imports_ends_a_program_silently(tmp_path: Path, name: str) -> None:
    (tmp_path / "typer.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    module, _, function = SCRIPTS[name].partition(":")
    for how in (["-m", name], ["-c", f"from {module} import {function}"]):
        process = subprocess.Popen(
            [sys.executable, *how],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (130, "")
