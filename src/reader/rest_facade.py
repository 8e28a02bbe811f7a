"""Serve the catalog as a read-only Iceberg REST service, for DuckDB sessions of the reader or for any Iceberg client.

DuckDB reads REST catalogs, but not catalogs in SQLite or Postgres. Each statement sends requests to this service, so an
open session sees every commit. For a session, the service listens on 127.0.0.1 below a random path; for other clients
(``reader serve``), it listens on the address of the settings and requires a token.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from lakeproof.catalog import catalog_errors, s3_without_keys, unreadable, uses_s3
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.http_server import HttpServer, address_of
from lakeproof.proxies import reach_this_machine_directly
from lakeproof.settings import Settings
from lakeproof.tables.names import stream_tables
from reader.catalogs import Catalog, catalog_of
from reader.letters import ATTEMPT_COLUMNS

ROOT_NAMESPACE = "root"  # an empty namespace in which a session starts, even in an empty lake

ATTEMPTS_OF = "attempts_of_"
"""Prefix of the names in the empty namespace under which views find the attempts of a stream."""

_NAMESPACE = "/v1/{prefix}/namespaces/{namespace}"
_ENDPOINTS = [
    "GET /v1/{prefix}/namespaces",
    f"GET {_NAMESPACE}",
    f"HEAD {_NAMESPACE}",
    f"GET {_NAMESPACE}/tables",
    f"GET {_NAMESPACE}/tables/{{table}}",
    f"HEAD {_NAMESPACE}/tables/{{table}}",
]
_READ_ONLY = "This catalog is read-only: only lakeproof writes."
_UNAUTHORIZED = "expected the token of `reader serve`, as Authorization: Bearer"
_LEVELS = "\x1f"  # separator of namespace levels in the REST protocol

_EMPTY_ATTEMPTS = (
    "file:///nowhere/metadata.json",
    json.dumps(
        {
            "format-version": 2,
            "table-uuid": "00000000-0000-0000-0000-000000000000",
            "location": "file:///nowhere",
            "last-sequence-number": 0,
            "last-updated-ms": 0,
            "last-column-id": len(ATTEMPT_COLUMNS),
            "current-schema-id": 0,
            "schemas": [
                {
                    "type": "struct",
                    "schema-id": 0,
                    "fields": [
                        {"id": number, "name": column, "type": kind, "required": False}
                        for number, (column, kind) in enumerate(ATTEMPT_COLUMNS.items(), 1)
                    ],
                }
            ],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {},
            "snapshots": [],
        }
    ),
)


@contextmanager
def serve_catalog(settings: Settings, failures: list[LakeproofError], catalog: Catalog | None = None) -> Iterator[str]:
    """Serve a catalog, by default the one of the settings, on 127.0.0.1 within the context; yield the endpoint."""
    reach_this_machine_directly()
    own = f"/{secrets.token_urlsafe(16)}"
    server = _Server(settings, "127.0.0.1", 0, failures.append, prefix=own, catalog=catalog)
    with server.in_background():
        yield f"http://127.0.0.1:{server.server_port}{server.prefix}"


@contextmanager
def serve_to_others(settings: Settings, token: str, report: Callable[[LakeproofError], None]) -> Iterator[str]:
    """Serve the catalog to clients with the token within the context; yield the address."""
    host, port = settings.serve.host, settings.serve.port
    try:
        server = _Server(settings, host, port, report, token=token)
    except OSError as error:
        raise UnavailableError(
            f"Cannot listen on {host}:{port}: {error.strerror}.",
            "Stop the program that uses it, or set LAKE_SERVE_HOST and LAKE_SERVE_PORT.",
        ) from error
    with server:
        with catalog_errors():
            server.catalog.namespaces(())  # fail at the start if the address of the catalog is wrong
        with server.in_background():
            yield address_of(host, server.server_port)


class _RefusedError(Exception):
    """A request that is answered with an error of the protocol."""

    def __init__(self, message: str, status: int, kind: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class _Server(HttpServer):
    def __init__(
        self,
        settings: Settings,
        host: str,
        port: int,
        report: Callable[[LakeproofError], None],
        prefix: str = "",
        token: str | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        super().__init__(host, port, _Handler)
        self.prefix = prefix
        self.token = token
        self.report = report
        self.catalog = catalog or catalog_of(settings)
        self._settings = settings

    def answer(self, path: list[str], parent: tuple[str, ...]) -> str:
        """Answer a GET of the protocol: `path` follows ``/v1/``, decoded; `parent` limits namespaces."""
        match path:
            case ["config"]:
                # Clients with this list use no other endpoints; without it, Spark would send metrics.
                return json.dumps({"defaults": self._defaults(), "overrides": {}, "endpoints": _ENDPOINTS})
            case ["namespaces"]:
                return json.dumps({"namespaces": [list(name) for name in self.catalog.namespaces(parent)]})
            case ["namespaces", namespace]:
                # Also for missing namespaces: after a 404, DuckDB 1.5 never asks again, and would not see the namespace
                # that the first commit creates (duckdb-iceberg#1233). For tables, it asks each time.
                return json.dumps({"namespace": list(_levels(namespace)), "properties": {}})
            case ["namespaces", namespace, "tables"]:
                at = _levels(namespace)
                found = [] if namespace == ROOT_NAMESPACE else self.catalog.tables(at)
                return json.dumps({"identifiers": [{"namespace": list(at), "name": name} for name in found]})
            case ["namespaces", namespace, "tables", name] if self._is_table(namespace, name):
                is_ours = namespace == ROOT_NAMESPACE
                table = self._attempts(name) if is_ours else self.catalog.metadata(_levels(namespace), name)
                if table is None:
                    named = ".".join((*_levels(namespace), name))
                    raise _RefusedError(f"Table does not exist: {named}", 404, "NoSuchTableException")
                location, metadata = table
                return f'{{"metadata-location":{json.dumps(location)},"metadata":{metadata},"config":{{}}}}'
            case _:
                raise _nothing_there()

    def _is_table(self, namespace: str, name: str) -> bool:
        """Return whether a table may have this name; our own session also finds attempts in the empty namespace."""
        return namespace != ROOT_NAMESPACE or (self.token is None and name.startswith(ATTEMPTS_OF))

    def _attempts(self, name: str) -> tuple[str, str] | None:
        """Return the attempts of a stream, or an empty table: views need one before the first replay creates it."""
        namespace, _, table = stream_tables(name.removeprefix(ATTEMPTS_OF)).attempts.partition(".")
        return self.catalog.metadata((namespace,), table) or _EMPTY_ATTEMPTS

    def _defaults(self) -> dict[str, str]:
        """Return file access properties for clients; they use their own keys, ours are never sent."""
        if self.token is None or not uses_s3(self._settings):
            return {}
        return s3_without_keys(self._settings.s3)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds after which an idle connection is closed; the client reconnects
    # Send each response in one packet; of two packets, the second waits 40 ms for the first one's acknowledgment.
    wbufsize = -1

    def do_GET(self) -> None:
        try:
            body = self.server.answer(*self._parse_path())
        except _RefusedError as error:
            self._refuse(error)
        except Exception as error:  # noqa: BLE001 - any error of the catalog is reported here
            failure = error if isinstance(error, LakeproofError) else unreadable(error)
            self.server.report(failure)
            # 400, although it is not the client's fault: DuckDB retries after 5xx, and the shell hangs.
            self._refuse(_RefusedError(str(failure), 400, type(error).__name__))
        else:
            self._send(200, body)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def do_POST(self) -> None:
        self.close_connection = True  # the body stays unread
        try:
            self._parse_path()
            self._refuse(_RefusedError(_READ_ONLY, 405, "UnsupportedOperationException"))
        except _RefusedError as error:
            self._refuse(error)

    do_PUT = do_DELETE = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: the terminal belongs to the shell."""

    def _parse_path(self) -> tuple[list[str], tuple[str, ...]]:
        """Return the path after ``/v1/``, and the parent of the namespaces."""
        token = self.server.token
        if token is not None:
            sent = self.headers.get("Authorization", "").encode("latin-1")
            if not secrets.compare_digest(sent, f"Bearer {token}".encode("latin-1")):
                raise _RefusedError(_UNAUTHORIZED, 401, "NotAuthorizedException")
        url = urlsplit(self.path)
        prefix, _, rest = url.path.partition("/v1/")
        if not secrets.compare_digest(prefix.encode(), self.server.prefix.encode()):
            raise _nothing_there()
        parent = "".join(parse_qs(url.query).get("parent", []))
        return [unquote(part) for part in rest.split("/")], _levels(parent) if parent else ()

    def _refuse(self, why: "_RefusedError") -> None:
        error = {"message": str(why), "type": why.kind, "code": why.status}
        self._send(why.status, json.dumps({"error": error}))

    def _send(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _nothing_there() -> _RefusedError:
    return _RefusedError("there is nothing of that name", 404, "NotFoundException")


def _levels(namespace: str) -> tuple[str, ...]:
    return tuple(namespace.split(_LEVELS))
