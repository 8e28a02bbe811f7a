"""A delaying proxy forwards requests with a delay, and counts them by method."""

import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from benchmarks.delays import DelayingProxy


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def proxy() -> Iterator[DelayingProxy]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        proxy = DelayingProxy(server.server_port)
        yield proxy
        proxy.close()
        server.shutdown()


def post(proxy: DelayingProxy, body: bytes) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(proxy.uri, body, timeout=30) as answer:
        return bytes(answer.read())


def test_a_large_request_arrives_whole_and_counts_once(proxy: DelayingProxy) -> None:
    body = b"GET " * 500_000
    assert post(proxy, body) == body
    assert post(proxy, b"PUT x") == b"PUT x"
    assert proxy.requests["POST"] == 2


def test_each_request_is_late(proxy: DelayingProxy) -> None:
    proxy.seconds = 0.2
    began = time.monotonic()
    assert post(proxy, b"a") == b"a"
    assert time.monotonic() - began >= 0.2
