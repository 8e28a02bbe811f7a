"""Signals that ask a program to end."""

import os
import pty
import re
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

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


def test_a_signal_just_before_it_is_handled_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    real = signal.signal

    def interrupted(number: signal.Signals, handler: Any) -> Any:
        monkeypatch.setattr(signal, "signal", real)
        signal.raise_signal(signal.SIGTERM)
        return real(number, handler)

    def work() -> None:
        with asked_to_end():
            monkeypatch.setattr(signal, "signal", interrupted)
            with ending_signals(lambda *_: pytest.fail("the handler was not set yet")):
                pytest.fail("the signal was lost")

    with pytest.raises(AskedToEnd):
        work()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


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


HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"
WITH_PROGRESS = """
import signal
from rich.console import Console
from rich.progress import Progress
from lakeproof.signals import end_at_once
signal.signal(signal.SIGINT, lambda number, _: end_at_once(number))
with Progress(console=Console(stderr=True)) as bar:
    bar.add_task("working")
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize(("terminal", "shown"), [("xterm", [HIDE, SHOW]), ("dumb", [])])
def test_an_end_at_once_restores_the_cursor_of_the_terminal(terminal: str, shown: list[bytes]) -> None:
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_PROGRESS], env=os.environ | {"TERM": terminal}, stdout=subprocess.PIPE, stderr=its
    )
    os.close(its)
    found = b""
    with suppress(OSError):  # at its end
        while data := os.read(ours, 1 << 16):
            found += data
    os.close(ours)
    assert process.communicate() == (b"", None)
    assert process.returncode == 130
    assert re.findall(rb"\x1b\[\?25[lh]", found) == shown


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
