"""``reader page --serve``: serve the page, the first rows of each number, and the path of an event over HTTP."""

import errno
import hashlib
import ipaddress
import os
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qs, quote, unquote, urlsplit

import typer

from lakeproof.catalog import unreadable
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.http_server import HttpServer, address_of, authority
from lakeproof.settings import Settings
from lakeproof.signals import ending_signals
from reader.catalogs import catalog_of
from reader.connect import connect
from reader.page.collect import collect
from reader.page.event_path import event_path
from reader.page.model import Page
from reader.page.outlook import outlook
from reader.page.render import policy, render, render_rows

_POLL_SECONDS = 0.2
_LEAST_SECONDS = 1.0  # minimum age of a page before a commit causes a new read
_MOST_SECONDS = 15.0  # maximum age of a page without commits: new data for the consumer makes no commit
_ROWS = 50
_PORT = 8282


def run_page(
    settings: Settings, streams: Sequence[str], host: str, port: int | None, port_file: Path | None = None
) -> NoReturn:
    """Serve the page until a signal, and exit; write the port to `port_file` once the server listens."""
    for stream in streams:
        load_contract(settings.contracts, stream)
    ended: list[int] = []
    with ending_signals(lambda number, _: ended.append(number)), serving(settings, streams, host, port) as address:
        if port_file:
            _write_port(port_file, urlsplit(address).port)
        typer.echo(f"The page of the lake is at {address} Ctrl-C stops it.")
        while not ended:
            time.sleep(_POLL_SECONDS)
    # A thread that still reads the lake would return from DuckDB into an ending interpreter, and abort the program.
    sys.stdout.flush()
    os._exit(0)


@contextmanager
def serving(settings: Settings, streams: Sequence[str], host: str, port: int | None) -> Iterator[str]:
    """Serve the page within the context; yield its address, with the token if one is required.

    Without a port, the server listens on 8282, or on any free port if 8282 is in use.
    """
    token = None if _is_loopback(host) else _token(settings)
    wanted = _PORT if port is None else port
    try:
        server = _Server(host, wanted, settings, streams, token)
    except OSError as error:
        if port is not None or error.errno != errno.EADDRINUSE:
            raise UnavailableError(
                f"Cannot listen on {host}:{wanted}: {error.strerror}.",
                "Stop the program that uses it, or use another --port.",
            ) from error
        server = _Server(host, 0, settings, streams, token)
    with server.in_background():
        yield f"{address_of(host, server.server_port)}/" + (f"?token={quote(token)}" if token else "")


def _write_port(file: Path, port: int | None) -> None:
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_text(str(port))
        new.replace(file)  # a file that exists is complete
    except OSError as error:
        raise UsageError(f"Cannot write {file}: {error.strerror}.", "Check the folder of --port-file.") from error


def _token(settings: Settings) -> str:
    given = settings.serve.token
    return given.get_secret_value() if given else secrets.token_urlsafe()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Server(HttpServer):
    def __init__(self, host: str, port: int, settings: Settings, streams: Sequence[str], token: str | None) -> None:
        super().__init__(host, port, _Handler)
        self.token = token
        self.cookie = f"lakeproof_page_{self.server_port}"  # browsers send cookies of a host to all its ports
        self.settings = settings
        self.streams = streams
        self.hosts = {authority(name, self.server_port) for name in ("127.0.0.1", "localhost", host)}
        self._catalog = catalog_of(settings)
        self._reading = threading.Lock()
        self._read: tuple[float, str, Page] | None = None

    def version(self) -> str:
        """Return a digest that changes with each commit, and every `_MOST_SECONDS`."""
        state = "\n".join(self._catalog.locations())
        return hashlib.sha256(f"{state}\n{int(time.time() / _MOST_SECONDS)}".encode()).hexdigest()[:32]

    def page(self) -> Page:
        """Return the current page; it is read by one thread at a time, and only if the version has changed."""
        with self._reading:
            version, now = self.version(), time.monotonic()
            if self._read and (now - self._read[0] < _LEAST_SECONDS or self._read[1] == version):
                return self._read[2]
            page = collect(self.settings, self.streams)
            self._read = (time.monotonic(), version, page)
            return page

    def rows(self, stream: str, key: str) -> str | None:
        """Return the page with the first rows of a number; None if the number is not on the page."""
        found = next((each for each in self.page().streams if each.name == stream), None)
        if found is None:
            return None
        of_products = [each for product in found.products for each in (product.windows, *product.numbers) if each]
        numbers = {each.key: each for each in (*found.numbers.values(), *of_products)}
        if key not in numbers:
            return None
        with connect(self.settings) as session, session.errors():
            result = session.connection.execute(f"FROM ({numbers[key].rows}) LIMIT {_ROWS}")
            columns = [name for name, *_ in result.description]
            rows = [[_text(value) for value in row] for row in result.fetchall()]
        part = {"title": f"The first {_ROWS} rows", "columns": columns, "rows": rows, "empty": "No rows."}
        title = f"{stream}: {numbers[key].what}, {numbers[key].value:,}"
        return render_rows(title=title, text="", sql=numbers[key].rows, home="../..", parts=[part])

    def outlook(self, stream: str) -> str | None:
        """Return the page with the forecast of a replay and of the contract in the file; None for unknown streams."""
        if stream not in [each.name for each in self.page().streams]:
            return None
        text, parts = outlook(self.settings, stream)
        title = f"{stream}: what a replay would do, by the contract in the file"
        return render_rows(title=title, text=text, sql="", home="..", parts=parts)

    def event(self, stream: str, value: str) -> str | None:
        """Return the page with the path of an event; None for unknown streams."""
        if stream not in [each.name for each in self.page().streams]:
            return None
        with connect(self.settings) as session:
            parts = event_path(self.settings, session, stream, value)
        return render_rows(title=f"{stream}: the path of {value[:100]}", text="", sql="", home="..", parts=parts)


def _text(value: object) -> object:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60
    wbufsize = -1

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = parse_qs(url.query)
        refused = self._refused(asked)
        if refused:
            self._send(*refused)
            return
        if self.server.token and "token" in asked:  # remove the token from the address: browsers store and show it
            self._send(303, "", cookie=True, location=url.path)
            return
        try:
            body = self._answer([unquote(part) for part in url.path.split("/")[1:]], asked)
        except Exception as error:  # noqa: BLE001 - whatever a catalog raises: the next commit may be readable again
            failure = error if isinstance(error, LakeproofError) else unreadable(error)
            self._send(503, render_rows(title="The lake cannot be read", text=str(failure), sql="", home="/", parts=[]))
            return
        kind = "text/plain" if url.path == "/version" else "text/html"
        self._send(404 if body is None else 200, body or "There is no such page.", kind)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: an address may contain a token."""

    def _answer(self, path: list[str], asked: dict[str, list[str]]) -> str | None:
        match path:
            case [""]:
                return render(self.server.page(), live=True)
            case ["version"]:
                return self.server.version()
            case ["rows", stream, key]:
                return self.server.rows(stream, key)
            case ["outlook", stream]:
                return self.server.outlook(stream)
            case ["event", stream] if "id" in asked:
                return self.server.event(stream, asked["id"][0])
            case _:
                return None

    def _refused(self, asked: dict[str, list[str]]) -> tuple[int, str] | None:
        """Refuse requests with an unknown host name, against DNS rebinding, and requests without the token."""
        token = self.server.token
        if token is None:
            if self.headers.get("Host", "").lower() in self.server.hosts:
                return None
            return 403, "Expected the address that `reader page --serve` has printed."
        # SimpleCookie would drop all cookies if one of another server cannot be parsed.
        cookies = [each.strip().partition("=") for each in self.headers.get("Cookie", "").split(";")]
        given = [*asked.get("token", []), *(value for name, _, value in cookies if name == self.server.cookie)]
        if any(secrets.compare_digest(each.encode(), token.encode()) for each in given):
            return None
        return 401, "Expected the token: open the address that `reader page --serve` has printed."

    def _send(
        self, status: int, text: str, kind: str = "text/html", *, cookie: bool = False, location: str = ""
    ) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        if cookie:
            login = f"{self.server.cookie}={self.server.token}"
            self.send_header("Set-Cookie", f"{login}; HttpOnly; SameSite=Strict; Path=/")
        if location:
            self.send_header("Location", location)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
