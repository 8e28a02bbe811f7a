"""The catalog as a read-only Iceberg REST service, for the DuckDB session of this process and nobody else.

DuckDB speaks REST to a catalog, but neither SQLite nor Postgres. So every look at a table goes DuckDB → here →
PyIceberg → catalog, and a session that stays open sees each commit and each new table with its next statement.
It listens on 127.0.0.1, below a path that nobody can guess, and knows nothing but reading.
"""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakeproof.catalog import open_catalog, unreadable
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

ROOT_NAMESPACE = "root"
"""The namespace of the catalog itself, without tables: a session starts in it, even in an empty lake."""

_LEVELS = "\x1f"  # between the levels of a namespace, as the REST protocol has it


@contextmanager
def serve_catalog(settings: Settings, failures: list[LakeproofError]) -> Iterator[str]:
    """Serve the catalog of `settings` as long as the context lasts.

    Parameters
    ----------
    settings
        Which catalog. It is opened by the first question about a table, not before.
    failures
        Gets each failure of the catalog. DuckDB repeats its message, within one of its own.

    Yields
    ------
    str
        The endpoint to attach.
    """
    server = _Server(settings, failures)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{server.secret}"
    finally:
        server.shutdown()
        server.server_close()


class _NotFoundError(Exception):
    pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, settings: Settings, failures: list[LakeproofError]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.secret = secrets.token_urlsafe(16)
        self.failures = failures
        self._settings = settings
        self._opening = threading.Lock()

    @property
    def catalog(self) -> "Catalog":
        with self._opening:
            return self._catalog

    @cached_property
    def _catalog(self) -> "Catalog":
        return open_catalog(self._settings)

    def answer(self, path: list[str]) -> str:
        """Answer a GET of the protocol: `path` is what follows ``/v1/``, decoded."""
        match path:
            case ["config"]:
                return json.dumps({"defaults": {}, "overrides": {}})
            case ["namespaces"]:
                return json.dumps({"namespaces": [list(name) for name in self.catalog.list_namespaces()]})
            case ["namespaces", namespace]:
                # Also where there is none: DuckDB 1.5 never asks again after a no, and would not see the namespace
                # that the first commit makes (duckdb-iceberg#1233). About tables it asks each time.
                return json.dumps({"namespace": list(_levels(namespace)), "properties": {}})
            case ["namespaces", namespace, "tables"]:
                return json.dumps({"identifiers": self._tables(namespace)})
            case ["namespaces", namespace, "tables", name] if namespace != ROOT_NAMESPACE:
                table = self.catalog.load_table((*_levels(namespace), name))
                location = json.dumps(table.metadata_location)
                return f'{{"metadata-location":{location},"metadata":{_metadata(table)},"config":{{}}}}'
            case _:
                raise _NotFoundError

    def _tables(self, namespace: str) -> list[dict[str, object]]:
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            found = [] if namespace == ROOT_NAMESPACE else self.catalog.list_tables(_levels(namespace))
        except NoSuchNamespaceError:
            found = []
        return [{"namespace": list(at), "name": name} for *at, name in found]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # One packet per answer; in two, the second waits 40 ms for the first one's acknowledgement.
    wbufsize = -1

    def do_GET(self) -> None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            body = self.server.answer(self._path())
        except (_NotFoundError, NoSuchNamespaceError, NoSuchTableError) as error:
            self._refuse(404, type(error).__name__.strip("_"), str(error) or "there is nothing of that name")
        except Exception as error:  # noqa: BLE001 - any error in there is reported here
            failure = error if isinstance(error, LakeproofError) else unreadable(error)
            self.server.failures.append(failure)
            # 400, although it is not the caller's fault: DuckDB repeats what ends with 5xx, and the shell hangs.
            self._refuse(400, type(error).__name__, str(failure))
        else:
            self._send(200, body)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def do_POST(self) -> None:
        self._refuse(405, "UnsupportedOperationException", "the reader is read-only")

    do_PUT = do_DELETE = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: the terminal belongs to the shell."""

    def _path(self) -> list[str]:
        secret, _, rest = urlsplit(self.path).path.removeprefix("/").partition("/v1/")
        if not secrets.compare_digest(secret.encode(), self.server.secret.encode()):
            raise _NotFoundError
        return [unquote(part) for part in rest.split("/")]

    def _refuse(self, status: int, kind: str, message: str) -> None:
        self._send(status, json.dumps({"error": {"message": message, "type": kind, "code": status}}))

    def _send(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _metadata(table: "Table") -> str:
    """The text of the metadata file itself: PyIceberg writes no version 3 of the format, nor what it does not know."""
    from pyiceberg.serializers import Compressor

    decompressed = Compressor.get_compressor(table.metadata_location).stream_decompressor
    with table.io.new_input(table.metadata_location).open() as stream, decompressed(stream) as text:
        return text.read().decode()


def _levels(namespace: str) -> tuple[str, ...]:
    return tuple(namespace.split(_LEVELS))
