"""Slow, idle, endless and broken clients: the collector keeps running and answering others, with bounded memory."""

import gzip
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import psutil
import pytest
from backports import zstd
from tests.collector.conftest import own_topics
from tests.collector.running import Collector, event, wait_for
from tests.servers import PATIENCE, KafkaServer

from collector.keys import new_key

HEAD = b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'[{"id":1,"type":"a","event":{}}]'
HASTE = 3  # seconds; a client of these tests sends its next bytes in less, also on a busy machine


def connect(running: Collector, text: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE)
    connection.sendall(text)
    return connection


def status_of_answer(connection: socket.socket) -> int:
    """Return the status of an answer after reading it to its end."""
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def is_open(connection: socket.socket) -> bool:
    """Return whether the other side has not closed the connection, after reading what it has sent."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return True
    except ConnectionResetError:
        pass
    return False


def megabytes(running: Collector) -> float:
    return float(psutil.Process(running.process.pid).memory_info().rss / 1e6)


def rest(connection: socket.socket) -> bytes:
    """Return all data received until the other side closes the connection."""
    found = b""
    with connection:
        try:
            while part := connection.recv(65536):
                found += part
        except ConnectionResetError:
            pass
    return found


@pytest.fixture(scope="module")
def hasty(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    settings = own_topics(kafka) | {"LAKE_COLLECTOR_BODY_SECONDS": str(HASTE)}
    with Collector(tmp_path_factory.mktemp("hasty"), settings) as running:
        yield running.ready()


@pytest.fixture(scope="module")
def patient(kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """What it leaves open was not cut off by `hasty` after some other time than that of its setting."""
    settings = own_topics(kafka) | {"LAKE_COLLECTOR_BODY_SECONDS": "3600"}
    with Collector(tmp_path_factory.mktemp("patient"), settings) as running:
        yield running.ready()


@pytest.mark.all
def test_slow_clients_get_408_or_are_cut_off(hasty: Collector, patient: Collector) -> None:
    left = [connect(patient, text) for text in (HEAD + b"Content-Length: 100\r\n\r\n[", b"", b"P", HEAD)]
    began = time.monotonic()
    half = connect(hasty, HEAD + b"Content-Length: 100\r\n\r\n[")
    chunks = connect(hasty, HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n")
    second = connect(
        hasty, HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY + HEAD + b"Content-Length: 100\r\n\r\n["
    )
    waiting = connect(hasty, HEAD + b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n")
    heads = [connect(hasty, text) for text in (b"", b"P", HEAD)]
    assert hasty.send(BODY).status == 202
    for connection in (half, chunks):
        answer = rest(connection)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer
    answer = rest(second)
    assert answer.startswith(b"HTTP/1.1 202 ")
    assert b"HTTP/1.1 408 " in answer
    answer = rest(waiting)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 408 ")
    assert [rest(connection) for connection in heads] == [b"", b"", b""]
    assert time.monotonic() - began > HASTE * 0.9
    assert [is_open(connection) for connection in left] == [True] * 4


def check_that_only_haste_closes(
    connected: Callable[[Collector], socket.socket], hasty: Collector, patient: Collector
) -> None:
    """Check that a connection is closed after the time of a hasty collector, and that a patient one keeps it."""
    left, began = connected(patient), time.monotonic()
    assert rest(connected(hasty)) == b""
    assert time.monotonic() - began > HASTE * 0.9
    assert is_open(left)


@pytest.mark.all
def test_a_second_head_may_not_be_slow_either(hasty: Collector, patient: Collector) -> None:
    def second_head(running: Collector) -> socket.socket:
        connection = connect(running, HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
        assert status_of_answer(connection) == 202
        connection.sendall(b"POST /coll")
        return connection

    check_that_only_haste_closes(second_head, hasty, patient)


@pytest.mark.all
def test_a_body_that_was_answered_early_may_not_be_slow_either(hasty: Collector, patient: Collector) -> None:
    """Each byte would put off the end of an idle connection, and nobody reads the body."""
    long = b"Host: x\r\nContent-Length: 1000000\r\n\r\n"
    heads = {
        415: b"POST /collect HTTP/1.1\r\n" + long,
        413: HEAD + b"Content-Length: 1000000000\r\n\r\n",
        405: b"PUT /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFF\r\n",
        404: b"POST /nowhere HTTP/1.1\r\n" + long,
        200: b"GET /healthz HTTP/1.1\r\n" + long,
    }
    others = {status: connect(patient, head) for status, head in heads.items()}
    for status, connection in others.items():
        assert status_of_answer(connection) == status
        connection.sendall(b"x")  # so that it is none of the idle connections, which end after five seconds
    began = time.monotonic()
    left = {status: connect(hasty, head) for status, head in heads.items()}
    for status, connection in left.items():
        assert status_of_answer(connection) == status
    while left:
        assert time.monotonic() - began < 180, left
        time.sleep(0.1)
        for status, connection in [*left.items()]:
            try:
                connection.sendall(b"x")
            except (ConnectionResetError, BrokenPipeError):
                left.pop(status).close()
                assert time.monotonic() - began > HASTE * 0.9
    assert [is_open(connection) for connection in others.values()] == [True] * len(heads)


@pytest.mark.all
def test_a_refused_client_that_sends_its_body_keeps_its_connection(start_collector: Any, tmp_path: Path) -> None:
    key = new_key("shop")
    (tmp_path / "keys").write_text(key.line)
    running: Collector = start_collector(collector_keys=tmp_path / "keys", collector_body_seconds=3).ready()
    size = b"Content-Length: %d\r\n" % len(BODY)
    connection = connect(running)
    for pause in (0.0, 0.3, 0.0, 0.3):
        connection.sendall(HEAD + size + b"\r\n" + BODY[: len(BODY) if not pause else 3])
        assert status_of_answer(connection) == 401
        if pause:
            time.sleep(pause)
            connection.sendall(BODY[3:])
    # With a key, the connection goes on, too, and a slow body still gets its 408.
    authorized = HEAD + b"Authorization: Bearer " + key.key.encode() + b"\r\n" + size + b"\r\n"
    connection.sendall(authorized + BODY)
    assert status_of_answer(connection) == 202
    connection.sendall(authorized + BODY[:-1])
    assert rest(connection).startswith(b"HTTP/1.1 408 ")


@pytest.mark.all
def test_a_connection_that_is_idle_after_a_refused_body_is_closed(hasty: Collector, patient: Collector) -> None:
    def refused(running: Collector) -> socket.socket:
        connection = connect(running, b"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
        assert status_of_answer(connection) == 415
        connection.sendall(b"[]")
        return connection

    check_that_only_haste_closes(refused, hasty, patient)


def send_until_cut_off(connection: socket.socket, *texts: bytes) -> None:
    for text in texts:
        try:
            connection.sendall(text)
        except (ConnectionResetError, BrokenPipeError):
            return
    pytest.fail("everything was read")


@pytest.mark.all
def test_a_client_that_reads_no_answers_is_cut_off(hasty: Collector) -> None:
    def answered() -> int:
        return len([line for line in hasty.logged("post") if line["status"] == 422])

    process = psutil.Process(hasty.process.pid)
    faulty = json.dumps([{}] * 40).encode()  # its answer is a hundred times longer
    post = HEAD + b"Content-Length: %d\r\n\r\n" % len(faulty) + faulty
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", hasty.port))
        own = connection.getsockname()

        def is_kept() -> bool:
            return any(each.raddr == own for each in process.net_connections("tcp4"))

        wait_for(is_kept)
        with suppress(OSError):
            while is_kept():
                awaited = answered() + 20
                connection.sendall(post * 20)
                # More would be cut off for being too many at once.
                wait_for(lambda most=awaited: answered() >= most or not is_kept())
    assert answered() > 50
    assert hasty.send(BODY).status == 202
    assert "Traceback" not in hasty.log.read_text()


def test_a_client_that_sends_hundreds_of_posts_at_once_is_cut_off(hasty: Collector) -> None:
    """Otherwise, all would be kept until the previous posts are answered."""
    before = megabytes(hasty)
    post = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    send_until_cut_off(connect(hasty), *[post * 500] * 200)
    assert megabytes(hasty) - before < 20
    assert hasty.send(BODY).status == 202


def test_a_head_without_end_is_cut_off(hasty: Collector) -> None:
    before = megabytes(hasty)
    headers = [b"X-Header-%d: %s\r\n" % (number, b"x" * 1000) for number in range(20_000)]
    send_until_cut_off(connect(hasty, b"POST /collect HTTP/1.1\r\n"), *headers)
    assert megabytes(hasty) - before < 20


@pytest.mark.parametrize("head", [HEAD, b"PUT /collect HTTP/1.1\r\nHost: x\r\n"], ids=["open", "answered"])
def test_trailers_without_end_are_cut_off(collector: Collector, head: bytes) -> None:
    """A parser keeps the headers behind a chunked body, also behind one whose post was refused at its head."""
    before = megabytes(collector)
    trailers = [b"X-Trailer-%d: %s\r\n" % (number, b"x" * 1000) for number in range(40_000)]
    start = head + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n0\r\n"
    send_until_cut_off(connect(collector, start), *trailers)
    assert megabytes(collector) - before < 20
    assert collector.send(BODY).status == 202


def test_what_is_not_http_is_refused(hasty: Collector) -> None:
    texts = [
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"POST /collect HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"\r\n" * 10,
        b"PRI * HTTP/2.0\r\n\r\n",
    ]
    # All at once: two of them are refused only after the time for a head.
    connections = {text: connect(hasty, text) for text in texts}
    for text, connection in connections.items():
        assert rest(connection)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 405"), text
        assert hasty.send(BODY).status == 202


def test_pipelined_posts_are_answered_in_order(collector: Collector) -> None:
    posts = b"".join(
        HEAD + b"X-Correlation-ID: p-%d\r\nContent-Length: %d\r\n\r\n" % (number, len(BODY)) + BODY
        for number in range(20)
    )
    connection = connect(collector, posts)
    found = b""
    while found.count(b"HTTP/1.1 202") < 20 or found.count(b"receipts") < 20:
        found += connection.recv(65536)
    places = [found.index(b"x-correlation-id: p-%d\r\n" % number) for number in range(20)]
    assert places == sorted(places)


def test_a_client_that_leaves_is_logged_and_costs_nothing(hasty: Collector) -> None:
    connect(hasty, HEAD + b"Content-Length: 100\r\n\r\n[").close()
    wait_for(lambda: [line for line in hasty.logged("post") if line["status"] == 499])
    wait_for(lambda: hasty.holds(0))


@pytest.fixture
def many_files() -> Iterator[int]:
    """Raise this process's limit to 10,000 connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    yield 10_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.all
def test_ten_thousand_idle_connections_do_not_hinder_others(start_collector: Any, many_files: int) -> None:
    running: Collector = start_collector(collector_body_seconds=600).ready()
    before = megabytes(running)
    with ExitStack() as stack:
        for number in range(many_files):
            stack.enter_context(connect(running, b"POST /collect HTTP/1.1\r\nX: y" if number % 2 else b""))
        assert running.send(BODY).status == 202
        process = psutil.Process(running.process.pid)
        wait_for(lambda: process.num_fds() > many_files)
        assert megabytes(running) - before < 250
    wait_for(lambda: process.num_fds() < 100)
    assert running.send(BODY).status == 202


def test_connections_beyond_the_limit_are_closed(start_collector: Any) -> None:
    running: Collector = start_collector(collector_max_connections=5, collector_body_seconds=30).ready()
    held = [connect(running, HEAD) for _ in range(5)]
    wait_for(lambda: rest(connect(running)) == b"")
    for connection in held:
        connection.close()
    wait_for(lambda: running.send(BODY).status == 202)


def test_large_posts_share_a_bounded_memory(start_collector: Any) -> None:
    limit = 8 * 1024**2
    running: Collector = start_collector(collector_max_queue_bytes=limit, collector_body_seconds=600).ready()
    before = megabytes(running)
    half = b"[" + b" " * 900_000
    held = [connect(running, HEAD + b"Content-Length: 1000000\r\n\r\n" + half) for _ in range(40)]
    refused: set[int] = set()
    for connection in held:
        connection.setblocking(False)

    def are_refused() -> bool:
        for number, connection in enumerate(held):
            with suppress(BlockingIOError):
                if connection.recv(100).startswith(b"HTTP/1.1 429 "):
                    refused.add(number)
        return len(refused) >= 25

    wait_for(are_refused)
    time.sleep(1)
    are_refused()
    assert len(refused) < 40
    assert megabytes(running) - before < 60
    assert running.send(b"[" + b" " * 999_999).status == 429
    for connection in held:
        connection.close()
    wait_for(lambda: running.holds(0))
    assert running.send(BODY).status == 202


@pytest.mark.all
def test_bombs_and_heaps_of_values_leave_the_memory_bounded(start_collector: Any) -> None:
    running: Collector = start_collector().ready()
    values = b"[" + b",".join([b'{"id":1,"type":"a","event":[[]]}'] * 100_000) + b"]"
    bodies = [gzip.compress(values), gzip.compress(b"[" * 100_000_000), zstd.compress(b" " * 100_000_000)]
    encodings = ["gzip", "gzip", "zstd"]
    for _ in range(3):
        answers = [running.send(body, content_encoding=each) for body, each in zip(bodies, encodings, strict=True)]
        assert [answer.status for answer in answers] == [422, 413, 413]
    before = megabytes(running)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda body, each: running.send(body, content_encoding=each), bodies * 16, encodings * 16))
    assert megabytes(running) - before < 40
    assert megabytes(running) < 350
    assert running.send(BODY).status == 202


def test_a_post_in_flight_is_answered_before_the_end(collector: Collector, start_collector: Any) -> None:
    running: Collector = start_collector(collector_body_seconds=300).ready()
    idle = connect(running)
    connection = connect(running, HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:-1])
    wait_for(lambda: running.holds(len(BODY) - 1))
    running.process.terminate()
    wait_for(running.refuses)
    assert rest(idle) == b""
    connection.sendall(BODY[-1:])
    answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 202 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["receipts"]
    assert running.process.wait(60) == 0
    assert running.logged("stopped")


@pytest.mark.all
def test_a_client_that_follows_the_log_is_not_refused(kafka: KafkaServer, tmp_path: Path) -> None:
    # A server that never begins to accept connections: the backlog takes them from the moment that the log tells.
    lazy = tmp_path / "collector_with_a_slow_start.py"
    lazy.write_text(
        "import asyncio, sys, uvicorn\n"
        "async def serve(self, sockets=None): await asyncio.sleep(600)\n"
        "uvicorn.Server.serve = serve\n"
        "sys.argv = ['collector', 'run']\n"
        "from collector.cli import main\n"
        "main()\n"
    )
    # The log also tells which port the kernel has chosen.
    with Collector(tmp_path / "log", own_topics(kafka) | {"LAKE_COLLECTOR_PORT": "0"}, [str(lazy)]) as running:
        assert running.port
        connect(running).close()


@pytest.mark.all
def test_a_closed_log_fails_no_post(start_collector: Any) -> None:
    running: Collector = start_collector()
    running.end()
    process = subprocess.Popen(
        [sys.executable, "-m", "collector", "run"],
        env=os.environ | running.settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr
    try:
        wait_for(lambda: running.get("/readyz").status == 200)
        process.stderr.close()
        assert [running.post([event(1)]).status for _ in range(3)] == [202] * 3
        process.terminate()
        process.wait(60)
    finally:
        process.kill()
