"""HTTP endpoints of a running application for Prometheus and orchestrators: `/metrics`, `/healthz` and `/readyz`.

A background thread polls the lake; answers use the result of its last look and never wait. Failures here
are counted and shown, and never stop a query.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import make_wsgi_app

from consumer.monitoring.metrics import Look, Metrics
from consumer.monitoring.query_status import NothingYetError
from consumer.monitoring.sizes import Sizes, TableSize, folder_size
from consumer.monitoring.status import status
from consumer.queries.application import Query, Started
from consumer.queries.bulletin import Bulletin
from consumer.queries.mode import ModeQuery
from consumer.queries.running import Running
from lakeproof.addresses import without_password
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.http_server import HttpServer, authority
from lakeproof.kafka.modes import ModeName
from lakeproof.settings import Settings
from lakeproof.state.lease import expiries
from lakeproof.state.proofs import last_proofs
from lakeproof.tables.names import silver_query
from lakeproof.wording import first_line

log = structlog.get_logger()

_CHECK_SECONDS = 1.0
_SHARE = 10  # the pause after a look is at least this many times as long as the look
_PATIENCE = 3  # looks that may fail or be late before the application is not ready
_CLIENT_SECONDS = 10.0
_END_SECONDS = 1.0


@contextmanager
def monitored(
    settings: Settings, queries: Sequence[Query], names: Sequence[str], *, available_now: bool
) -> Iterator[Started]:
    """Serve the metrics of an application at `LAKE_METRICS`; yield a callback for when its queries are started.

    `names` are the names of its streams, or of its mode.
    """
    monitor = Monitor(settings, queries, names, available_now=available_now)
    server = _listen(settings.monitor.metrics or "127.0.0.1:0", monitor.answer)
    processors = structlog.get_config()["processors"]
    processors.insert(0, monitor.metrics)
    watching = Thread(target=monitor.watch, name="metrics", daemon=True)
    watching.start()
    try:
        with server.in_background():
            place = authority(server.server_name, server.server_port)
            log.info("serving metrics", address=f"http://{place}/metrics")
            yield monitor.started
    finally:
        with suppress(ValueError):
            processors.remove(monitor.metrics)
        monitor.ending.set()
        watching.join(_END_SECONDS)  # the thread may be waiting for an unavailable broker


class Monitor:
    """Watches an application."""

    def __init__(
        self, settings: Settings, queries: Sequence[Query], names: Sequence[str], *, available_now: bool
    ) -> None:
        self._settings = settings
        self._queries = queries
        self._names = names
        self._available_now = available_now
        self._streams = [name for name in names if name not in list(ModeName)]
        self._sizes = Sizes(settings, self._streams)
        self._running: Mapping[str, Running] = {}
        self._bulletin: Bulletin | None = None
        self._looked_at = monotonic()  # when a look last succeeded
        self._pause = settings.monitor.seconds  # between two looks
        self._problem = ""  # of the last look
        self._ended: str | None = None  # a query that has ended, though the application runs
        self.ending = Event()
        self.metrics = Metrics(queries, lambda: not self.why_not_ready)
        self._metrics_app = make_wsgi_app(self.metrics.registry)

    def started(self, running: Mapping[str, Running], bulletin: Bulletin) -> None:
        """Note that all queries have been started."""
        self._running, self._bulletin = running, bulletin

    @property
    def why_not_ready(self) -> str:
        """Why the application does not process new data, or cannot reach the lake; empty if it is ready."""
        if self._bulletin is None:
            return "starting"
        if self._is_stopping:
            return "stopping"
        if paused := [query.name for query in self._queries if query.paused]:
            return f"paused: {' and '.join(paused)}"
        if self.metrics.looks.newest is None:
            return self._problem or "looking at the lake"
        if monotonic() - self._looked_at > _PATIENCE * self._pause:
            return self._problem or "the lake does not respond"
        return self.why_not_alive

    @property
    def why_not_alive(self) -> str:
        """The query that has ended though it should not have; empty if none has."""
        return f"{self._ended} has ended" if self._ended else ""

    def watch(self) -> None:
        """Check queries each second, and look at the lake now and then, until the end."""
        due, ended = 0.0, ""
        while not self.ending.wait(_CHECK_SECONDS):
            # When a query has ended, the application stops: if it does not, it hangs.
            before, ended = ended, self._find_ended()
            self._ended = ended if ended == before else ""
            if self._bulletin and monotonic() >= due:
                self._pause = max(self._settings.monitor.seconds, _SHARE * self._look())
                due = monotonic() + self._pause

    def answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request, as a WSGI application."""
        path, method = environ.get("PATH_INFO"), environ.get("REQUEST_METHOD")
        if path not in ("/metrics", "/healthz", "/readyz"):
            return _say(start_response, "404 Not Found", "not found")
        if method not in ("GET", "HEAD"):
            return _say(start_response, "405 Method Not Allowed", "expected GET")
        if path == "/metrics":
            found: Iterable[bytes] = self._metrics_app(environ, start_response)
            return found
        why, well = (self.why_not_alive, "ok") if path == "/healthz" else (self.why_not_ready, "ready")
        return _say(start_response, "503 Service Unavailable" if why else "200 OK", why or well)

    @property
    def _is_stopping(self) -> bool:
        bulletin = self._bulletin
        return (bulletin is not None and bulletin.is_stopping) or self.ending.is_set()

    def _find_ended(self) -> str:
        """Return the name of a query that has ended while the application is running."""
        if self._available_now or self._bulletin is None or self._is_stopping:
            return ""
        # A paused query ends long before the application if its followers have much to process.
        paused = {query.name for query in self._queries if query.paused}
        try:
            return next((name for name, each in self._running.items() if name not in paused and each.has_ended), "")
        except Exception:  # noqa: BLE001 - whatever Py4J raises
            return "Spark's JVM"

    def _look(self) -> float:
        """Look at the lake; return the seconds that it took."""
        began = monotonic()
        try:
            look = self._look_at_lake(began)
        except LakeproofError as error:
            self._problem = error.message
            self.metrics.failed()
        except Exception as error:  # noqa: BLE001 - of any library; the next look may succeed
            self._problem = f"{type(error).__name__}: {without_password(first_line(error))}"
            self.metrics.failed()
        else:
            self._problem, self._looked_at = "", monotonic()
            self.metrics.looks.newest = look
        return monotonic() - began

    def _look_at_lake(self, began: float) -> Look:
        settings, at = self._settings, datetime.now(UTC)
        leases = [query.lease_name for query in self._queries]
        modes = {query.lease_name: query.name for query in self._queries if isinstance(query, ModeQuery)}
        try:
            # Topics and checkpoints of earlier runs fall behind for as long as they exist: nobody fills them.
            found = status(settings, self._names, recent=True, leases=leases)
            # Counters have the name of a mode alone, since the application runs one.
            found = [replace(each, query=modes.get(each.query, each.query)) for each in found]
        except NothingYetError:  # other errors, such as a file that is being edited, keep the last look
            found = []
        sizes: Sequence[TableSize] = ()
        try:
            sizes = self._sizes.look() if self._streams else ()
        except Exception:  # noqa: BLE001 - a damaged manifest hides no lag
            self.metrics.failed()
        expire = expiries(settings.state.database, leases)
        proofs = [each for each in last_proofs(settings.state.database) if each.stream in self._streams]
        return Look(at, monotonic() - began, found, sizes, expire, dict(self._state()), proofs)

    def _state(self) -> Iterator[tuple[str, int]]:
        """Yield the size of the key indexes of silver and of modes, in bytes."""
        for stream in self._streams:
            folder = Path(self._settings.silver.index) / stream
            if folder.is_dir():
                yield silver_query(stream), folder_size(folder)
        for query in self._queries:
            if isinstance(query, ModeQuery) and (index := query.key_index):
                yield query.name, folder_size(index)


class _Server(HttpServer, WSGIServer):
    def server_bind(self) -> None:
        """Bind, and prepare the variables of WSGI that describe the server."""
        super().server_bind()
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS

    def log_message(self, *_: Any) -> None:
        """Log nothing: Prometheus sends a request every few seconds."""


def _listen(address: str, answer: Callable[..., Iterable[bytes]]) -> _Server:
    host, _, port = address.rpartition(":")
    try:
        server = _Server(host.strip("[]"), int(port), _Handler)
    except OSError as error:
        raise UnavailableError(
            f"Cannot serve metrics at {address}: {error.strerror}.",
            "Stop the program that uses the port, or set LAKE_METRICS to another address (port 0: any free port).",
        ) from error
    server.set_app(answer)
    return server


def _say(start_response: Callable[..., Any], line: str, text: str) -> list[bytes]:
    start_response(line, [("Content-Type", "application/json")])
    return [json.dumps({"status": text}).encode()]
