"""The daemon of Spark's workers, started before the JVM asks for it."""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.servers import PATIENCE

from consumer.spark.hand_over import hand_over
from lakeproof.cluster import QUICK_PYTHON

LIMIT = PATIENCE
Ahead = tuple[subprocess.Popen[bytes], Path]


@pytest.fixture
def ahead(tmp_path: Path) -> Iterator[Ahead]:
    """Start a daemon as the session does; yield it and the path of its socket."""
    path = tmp_path / "ahead" / "daemon"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)
        command = [sys.executable, "-m", "consumer.spark.worker_daemon", str(listening.fileno())]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], process_group=0, stdout=subprocess.DEVNULL
        )
    yield process, path
    process.kill()
    process.communicate()


def as_the_jvm_does(path: Path) -> subprocess.Popen[bytes]:
    """Start the daemon of workers as Spark's JVM does."""
    own = {"LAKEPROOF_PYTHON": sys.executable, "LAKEPROOF_DAEMON": str(path), "PYTHON_WORKER_FACTORY_SECRET": "secret"}
    command = [str(QUICK_PYTHON), "-m", "consumer.spark.worker_daemon", "pyspark.worker"]
    return subprocess.Popen(command, env=os.environ | own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def port_of(daemon: subprocess.Popen[bytes]) -> int:
    """Read the port that a daemon tells the JVM."""
    assert daemon.stdout
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    return int(port)


def listens_at(process: psutil.Process, port: int) -> bool:
    return port in [each.laddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]


def test_it_takes_the_place_of_the_one_that_the_jvm_starts(ahead: Ahead) -> None:
    process, path = ahead
    started = as_the_jvm_does(path)
    assert listens_at(psutil.Process(process.pid), port_of(started))
    assert started.poll() is None
    assert not path.parent.exists()
    started.communicate(timeout=LIMIT)  # closes its input, as the end of the JVM does
    process.wait(LIMIT)


@pytest.mark.all
def test_it_ends_when_the_jvm_does_although_its_stand_in_was_killed(ahead: Ahead) -> None:
    process, path = ahead
    started = as_the_jvm_does(path)
    port_of(started)
    for each in [*psutil.Process(started.pid).children(recursive=True), started]:
        each.kill()
    started.wait(LIMIT)
    assert process.poll() is None
    started.communicate()
    process.wait(LIMIT)


@pytest.mark.all
@pytest.mark.parametrize("sent", [b"", b'{"HOME":'])
def test_it_ends_if_the_one_that_hands_over_is_killed_meanwhile(ahead: Ahead, sent: bytes) -> None:
    process, path = ahead
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(sent)
    process.wait(LIMIT)


def test_it_ends_with_the_driver(ahead: Ahead) -> None:
    process, path = ahead
    process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert not path.parent.exists()


@pytest.mark.all
@pytest.mark.parametrize("is_gone", [True, False])
def test_without_it_the_daemon_starts_by_itself(ahead: Ahead, is_gone: bool) -> None:
    """Also a second time: Spark starts the daemon again if it has died."""
    process, path = ahead
    if is_gone:
        process.communicate(timeout=LIMIT)
    else:
        os.kill(process.pid, 9)
        process.wait(LIMIT)
    assert not hand_over(str(path))
    started = as_the_jvm_does(path)
    assert listens_at(psutil.Process(started.pid), port_of(started))
    started.communicate(timeout=LIMIT)
