"""HTTP servers beside the work of a program."""

import socket
import struct
from http.server import BaseHTTPRequestHandler
from urllib.request import urlopen

import pytest

from lakeproof.http_server import HttpServer, address_of, authority

TEXT = b"hello" * 1_000_000


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/mistake":
            raise ValueError("a mistake")
        self.send_response(200)
        self.send_header("Content-Length", str(len(TEXT)))
        self.end_headers()
        self.wfile.write(TEXT)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("host", "listens_on"), [("127.0.0.1",) * 2, ("::1",) * 2, ("localhost", "127.0.0.1")])
def test_a_server_answers_until_the_end_of_its_context(host: str, listens_on: str) -> None:
    server = HttpServer(host, 0, Handler)
    url = f"http://{authority(server.server_name, server.server_port)}/"
    assert server.server_name == listens_on
    with server.in_background(), urlopen(url) as answer:
        assert answer.read() == TEXT
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((listens_on, server.server_port))


def test_a_port_is_taken_by_one_server() -> None:
    server = HttpServer("127.0.0.1", 0, Handler)
    with server.in_background(), pytest.raises(OSError, match="in use"):
        HttpServer("127.0.0.1", server.server_port, Handler)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b"])
def test_an_unknown_host_has_a_reason(host: str) -> None:
    with pytest.raises(OSError) as error:  # noqa: PT011 - the text is of the system
        HttpServer(host, 0, Handler)
    assert error.value.strerror


def test_a_client_that_goes_away_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    server = HttpServer("127.0.0.1", 0, Handler)
    with server.in_background():
        for path, text in (("/", ""), ("/mistake", "a mistake")):
            client = socket.create_connection((server.server_name, server.server_port))
            client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            client.recv(10)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()  # with a reset
            with urlopen(f"http://127.0.0.1:{server.server_port}/") as answer:
                answer.read()
            said = capfd.readouterr().err
            assert text in said
            assert bool(said) == bool(text)


@pytest.mark.parametrize(
    ("host", "written", "reached"),
    [
        ("lake.local", "lake.local:1", "http://lake.local:1"),
        ("0.0.0.0", "0.0.0.0:1", "http://127.0.0.1:1"),
        ("::", "[::]:1", "http://[::1]:1"),
    ],
)
def test_addresses_that_can_be_opened(host: str, written: str, reached: str) -> None:
    assert authority(host, 1) == written
    assert address_of(host, 1) == reached
