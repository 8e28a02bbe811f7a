"""A TCP proxy for an HTTP server that counts requests and delays answers."""

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
        Delay of the answer to each request. Can be set at any time.
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
                connection = _Connection(client, socket.create_connection(self._upstream))
                for work in (self._ask, self._answer):
                    threading.Thread(target=work, args=(connection,), daemon=True).start()

    def _ask(self, connection: "_Connection") -> None:
        with suppress(OSError):
            while received := connection.client.recv(_BYTES):
                if received.startswith(_METHODS):
                    self.requests[received.split(b" ", 1)[0].decode()] += 1
                    connection.due = time.monotonic() + self.seconds
                connection.server.sendall(received)
        with suppress(OSError):
            connection.server.shutdown(socket.SHUT_WR)

    def _answer(self, connection: "_Connection") -> None:
        # Answers are late, not requests: a server would close an idle connection while its request is held back.
        with suppress(OSError):
            while received := connection.server.recv(_BYTES):
                time.sleep(max(connection.due - time.monotonic(), 0.0))
                connection.client.sendall(received)
        with suppress(OSError):
            connection.client.shutdown(socket.SHUT_WR)


class _Connection:
    """A client's connection, the one to the server, and the time of the next answer."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server, self.due = client, server, 0.0
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
