"""The programs as commands that start instantly: forks of a process that has imported them.

A start of Python with a program's imports takes one to two seconds of processor time, and the tests start programs
hundreds of times. `forked` runs a program in a fork of `_serve`, with the arguments, folder, environment and standard
streams of the caller, whose exit code is the program's. Tests that signal or kill a program start a real one, and so do
tests/test_house.py and tests/test_wheel.py for each program.
"""

import array
import atexit
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

NAMES = ("producer", "consumer", "reader", "lakeproof", "collector")
_CLIENT = Path(__file__).with_name("program_client.py")
_IMPORTED_LATER = (
    *("sqlglot", "duckdb", "sqlalchemy.dialects.sqlite", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"),
    *("reader.connect", "reader.verify.driver", "consumer.app.run", "consumer.monitoring.status", "producer.events"),
)
"""Modules that are slow to import (with PyArrow and PySpark), and imported by many commands at run time."""
_MOST_BYTES = 1 << 22


def forked(name: str) -> list[str]:
    """Return the command to use in place of ``python -m NAME``."""
    return [sys.executable, "-I", "-S", str(_CLIENT), str(_server()), name]


@cache
def folder() -> Path:
    """Return a folder with an executable file for each program, for a shell's PATH."""
    made = _server().parent / "bin"
    made.mkdir()
    for name in NAMES:
        words = " ".join(f"'{word}'" for word in forked(name))
        (made / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (made / name).chmod(0o755)
    return made


@cache
def _server() -> Path:
    """Start the process that forks; return the address of its socket."""
    own = Path(tempfile.mkdtemp(prefix="lakeproof-programs-"))  # short: an address has at most 107 bytes
    address = own / "socket"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LAKE_", "AWS_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.programs", str(address)],
        cwd=Path(__file__).parents[1],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )

    def stop() -> None:
        process.kill()
        process.wait()
        shutil.rmtree(own, ignore_errors=True)

    atexit.register(stop)
    while not address.exists():
        if process.poll() is not None:
            raise RuntimeError(f"the process of the programs ended with {process.returncode}")
        time.sleep(0.02)
    return address


def _serve(address: str) -> str:
    """Fork for each connection, forever; in the fork that runs a program, return the program's name."""
    for name in (*(f"{name}.cli" for name in NAMES), *_IMPORTED_LATER):
        importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{address}.new")
    listener.listen(64)
    Path(f"{address}.new").rename(address)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for these forks
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if name := _answer(connection):
            return name


def _answer(connection: socket.socket) -> str | None:
    """Read a request; return the program's name in the fork that runs it. Its parent waits for it, and exits."""
    descriptors = array.array("i")
    data, control, _, _ = connection.recvmsg(_MOST_BYTES, socket.CMSG_LEN(3 * descriptors.itemsize))
    for _, _, items in control:
        descriptors.frombytes(items)
    while not data.endswith(b"\n"):
        data += connection.recv(_MOST_BYTES)
    request = json.loads(data)
    child = os.fork()
    if child:
        for descriptor in descriptors:
            os.close(descriptor)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if select.select([connection], [], [], 0.02)[0]:  # the caller has ended
                os.kill(child, signal.SIGKILL)
        with suppress(OSError):
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
        os._exit(0)
    connection.close()
    _become(request, descriptors)
    return str(request["name"])


def _become(request: dict[str, object], descriptors: "array.array[int]") -> None:
    """Take over the caller's streams, folder, environment and arguments."""
    opened = dict(zip(request["open"], descriptors, strict=True))  # type: ignore[call-overload]
    for number, stream in enumerate(("stdin", "stdout", "stderr")):
        if number in opened:
            os.dup2(opened[number], number)
        else:
            os.close(number)
            setattr(sys, stream, None)  # as the interpreter does at startup
            setattr(sys, f"__{stream}__", None)
    for descriptor in descriptors:
        if descriptor > 2:
            os.close(descriptor)
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    time.tzset()
    sys.argv = [str(request["name"]), *request["arguments"]]  # type: ignore[misc]


def _run(name: str) -> None:
    """Run a program, and exit like the interpreter, but without tearing down modules, which would double the cost."""
    sys.modules["__main__"].__package__ = None  # as in a script: the usage shows its name
    code: object = 0
    try:
        sys.modules[f"{name}.cli"].main()
    except SystemExit as asked:
        code = asked.code
    except BaseException:  # noqa: BLE001 - whatever it is
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    _run(_serve(sys.argv[1]))
