"""A TCP proxy for an HTTP server that delays and counts requests."""

import socket
import threading
import time
from collections import Counter
from contextlib import suppress

_METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")
_BYTES = 1 << 16


class DelayingProxy:
    """Forwards data between a server and its clients.

    Clients wait for an answer before their next request, so each request starts a chunk of received data.

    Parameters
    ----------
    port
        Port of the server on 127.0.0.1.

    Attributes
    ----------
    seconds : float
        Delay of each request. Can be set at any time.
    requests : Counter of str
        Number of requests by method.
    """

    def __init__(self, port: int) -> None:
        self.seconds = 0.0
        self.requests: Counter[str] = Counter()
        self._upstream = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listening.getsockname()[1])
        self.uri = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections; open ones stay open."""
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._upstream)
                for one, other, asks in ((client, server, True), (server, client, False)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._pass_on, args=(one, other, asks), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while received := one.recv(_BYTES):
                if asks and received.startswith(_METHODS):
                    self.requests[received.split(b" ", 1)[0].decode()] += 1
                    time.sleep(self.seconds)
                other.sendall(received)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)
