"""HTTP servers beside the work of a program."""

import errno
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import Any

_OF_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not listened on


class HttpServer(ThreadingHTTPServer):
    """A server with a thread for each connection, on an IPv4 or IPv6 address.

    Raises
    ------
    OSError
        The address is unknown or in use.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family, place = resolve(host, port)
        super().__init__(place, handler)

    def server_bind(self) -> None:
        """Bind without a name server lookup of the host, which may be slow."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that go away before the end of an answer, as browsers do."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Answer requests within the context, then stop listening."""
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, name="http", daemon=True).start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the family and the address to listen on; of a name with both, such as localhost, those of IPv4.

    Raises
    ------
    OSError
        The address is unknown.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # an empty or overlong part
        raise OSError(errno.EINVAL, "not the name of a host") from error
    family, _, _, _, place = min(found, key=lambda each: each[0] != socket.AF_INET)  # health checks ask 127.0.0.1
    return family, (str(place[0]), int(place[1]))


def authority(host: str, port: int) -> str:
    """Return host and port in the form of a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(host: str, port: int) -> str:
    """Return the address at which programs on this machine reach a server that listens on a host."""
    return f"http://{authority(_OF_ALL.get(host, host), port)}"
