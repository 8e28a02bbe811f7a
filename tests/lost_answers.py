"""Proxies for a catalog that forward a commit, and lose or falsify its answer."""

import http.client
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit, urlunsplit

Lose = Callable[[str], bool]
"""Whether to lose Postgres's answer to a committed statement, given its tag ("UPDATE 1")."""

_REFUSE_ENCRYPTION = {struct.pack(">ii", 8, code): b"N" for code in (80877103, 80877104)}
_HEADER = struct.Struct(">ci")
_READ_ONLY = ("SELECT", "SET", "SHOW", "BEGIN", "ROLLBACK", "UPDATE 0")
_BYTES = 1 << 16


class PostgresProxy:
    """A Postgres proxy that may lose answers to committed statements, and resets the connection instead.

    Parameters
    ----------
    port
        Port of the server on 127.0.0.1.
    lose
        Called for each answer to a committed statement. Can be set at any time.

    Attributes
    ----------
    lost : list of str
        Tags of the lost answers.
    """

    def __init__(self, port: int, lose: Lose) -> None:
        self.lose = lose
        self.lost: list[str] = []
        self._upstream = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def through(self, uri: str) -> str:
        """Return the address of one of the server's databases through this proxy."""
        parts = urlsplit(uri)
        return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}"))

    def close(self) -> None:
        """Accept no more connections; open ones stay open."""
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._upstream)
        except OSError:  # the server is away
            _reset(client)
            return
        with suppress(OSError):
            while answer := _REFUSE_ENCRYPTION.get(first := client.recv(_BYTES)):
                client.sendall(answer)
            server.sendall(first)
            threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
            self._answer(server, client)
        _reset(client)
        server.close()

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        pending, held, tag = b"", b"", ""
        while received := server.recv(_BYTES):
            pending += received
            while len(pending) >= _HEADER.size:
                kind, length = _HEADER.unpack_from(pending)
                if len(pending) <= length:
                    break
                message, pending = pending[: 1 + length], pending[1 + length :]
                held += message
                body = message[_HEADER.size :]
                if kind == b"C":
                    tag = body.rstrip(b"\0").decode()
                elif kind == b"Z":
                    # Idle: the statement is committed.
                    if body == b"I" and tag and not tag.startswith(_READ_ONLY) and self.lose(tag):
                        self.lost.append(tag)
                        return
                    tag = ""
            if not tag:  # the end of an answer is forwarded together with the message that reports the commit
                client.sendall(held)
                held = b""


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(_BYTES):
            target.sendall(received)
        target.shutdown(socket.SHUT_WR)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # another thread may be reading from it, and a close would wait for that
    connection.close()


Answer = int | str | None
"""A client's answer to a commit: a status, "503 Retry-After" or "reset"; None for the real answer."""
# 409: the catalog's client sent the commit twice. 429 and 503 with Retry-After: Iceberg's client sends it again.
REST_ANSWERS: tuple[Answer, ...] = (409, 429, "503 Retry-After", 500, 502, 504, "reset")


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_arguments: object) -> None:
        """Log nothing: a killed client resets its connections."""


class RestProxy:
    """A proxy for an Iceberg REST catalog that may replace the answers to successful commits.

    Parameters
    ----------
    uri
        Address of the catalog.
    answer
        Called with the table name for each successful commit. Can be set at any time.

    Attributes
    ----------
    lost : list
        Replacement answers.
    """

    def __init__(self, uri: str, answer: Callable[[str], Answer]) -> None:
        self.answer = answer
        self.lost: list[Answer] = []
        self._upstream = urlsplit(uri).netloc
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy._forward(self)

            do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - names of the base class

            def log_message(self, *_arguments: object) -> None: ...

        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _forward(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection(self._upstream)
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        connection.request(request.command, request.path, body, headers)
        answer = connection.getresponse()
        status, content = answer.status, answer.read()
        connection.close()
        kind = answer.headers.get("Content-Type") or "application/json"
        more: dict[str, str] = {}
        namespaces, _, table = request.path.rpartition("/tables/")
        landed = request.command == "POST" and bool(namespaces) and status == http.HTTPStatus.OK
        if landed and (instead := self.answer(table)) is not None:
            self.lost.append(instead)
            if instead == "reset":
                request.close_connection = True
                _reset(request.connection)
                return
            code, _, retry = str(instead).partition(" ")
            status, more = int(code), {retry: "1"} if retry else {}
            content = b'{"error": {"message": "made up", "type": "MadeUp", "code": %d}}' % status
        request.send_response(status)
        for name, value in ({"Content-Type": kind, "Content-Length": str(len(content))} | more).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)
