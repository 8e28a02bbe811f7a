"""uvicorn with limits on connections and slow clients."""

import asyncio
import gc
import logging
import resource
import socket
from asyncio.events import TimerHandle
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import structlog
import uvicorn
import uvloop
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from collector.app import make_app
from collector.sender import open_sender
from lakeproof.errors import UnavailableError
from lakeproof.http_server import resolve
from lakeproof.kafka.client import client_properties
from lakeproof.logs import Forward
from lakeproof.settings import Settings
from lakeproof.signals import end_at_once, ending_signals

_BACKLOG = 4096
_MOST_HEAD_BYTES = 64 * 1024  # httptools accepts heads of any size
_MOST_PIPELINED = 100
_MOST_FILES = 65_536
_SPARE_FILES = 256  # for brokers, logs and the listener


def run(settings: Settings) -> None:
    """Serve until a signal; then finish the current posts."""
    _forward_logs()
    with _listen(settings.collector.host, settings.collector.port) as listener:
        uvloop.run(_serve(settings, listener))


async def _serve(settings: Settings, listener: socket.socket) -> None:
    failures: list[Exception] = []
    servers: list[_Server] = []

    def fail(error: Exception) -> None:
        failures.append(error)
        for server in servers:
            server.should_exit = True

    async with open_sender(client_properties(settings.kafka), settings, fail) as sender:
        collector = settings.collector
        config = uvicorn.Config(
            make_app(collector, sender),
            http=_bounded_protocol(_most_connections(collector.max_connections), collector.body_seconds),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=round(collector.body_seconds + collector.deadline_seconds) + 5,
        )
        servers.append(_Server(config))
        host, port = listener.getsockname()[:2]
        # Exclude long-lived objects from garbage collection: scanning them would delay posts by 60 ms now and then.
        gc.collect()
        gc.freeze()
        # uvicorn listens only after this line is logged: a client that follows the log would be refused.
        listener.listen(_BACKLOG)
        structlog.get_logger().info("listening", host=host, port=port, topic=collector.topic)
        await servers[0].serve(sockets=[listener])
    structlog.get_logger().info("stopped")
    if failures:
        raise failures[0]


class _Server(uvicorn.Server):
    """A server that ends cleanly at the first signal and immediately at the second."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        def handle(number: int, _frame: FrameType | None) -> None:
            if self.should_exit:
                end_at_once(number)
            self.should_exit = True

        with ending_signals(handle):
            yield


def _bounded_protocol(most_connections: int, seconds: float) -> type[HttpToolsProtocol]:
    """Make a protocol class that closes excess connections and those of slow clients."""

    class Bounded(HttpToolsProtocol):
        """One connection."""

        _slow_sender: TimerHandle | None = None  # of a head, or of the rest of a body after the answer
        _slow_reader: TimerHandle | None = None
        _answered: RequestResponseCycle | None = None
        _head_bytes = 0  # since the end of a message or a part of a body: also of trailers, which are kept like a head
        _reads_head = True

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most_connections:
                transport.abort()
            else:
                self._slow_sender = self._abort_later()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._slow_sender, self._slow_reader):
                if timer:
                    timer.cancel()
            if self._answered:  # may differ from the newest cycle, which uvicorn marks
                self._answered.disconnected = True
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._reads_head and self._slow_sender is None:
                self._slow_sender = self._abort_later()
            self._head_bytes += len(data)
            super().data_received(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self.transport.abort()

        def on_headers_complete(self) -> None:
            self._reads_head = False
            if self._slow_sender:
                self._slow_sender.cancel()
                self._slow_sender = None
            if len(self.pipeline) >= _MOST_PIPELINED:  # uvicorn would keep all requests
                self.transport.abort()
                return
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._head_bytes = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._reads_head = True
            self._head_bytes = 0
            if self._slow_sender:
                # The body had been answered, and each byte of it has canceled uvicorn's keep-alive timer.
                self._slow_sender.cancel()
                self._slow_sender = self._abort_later()
            super().on_message_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # Nobody reads a body after its answer. That of a queued request is read when the request is answered.
            if not self._reads_head and self.cycle.response_complete:
                self._slow_sender = self._abort_later()

        def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
            self._answered = cycle
            super()._start_asgi_task(cycle, app)

        def pause_writing(self) -> None:
            self._slow_reader = self._abort_later()
            super().pause_writing()

        def resume_writing(self) -> None:
            if self._slow_reader:
                self._slow_reader.cancel()
                self._slow_reader = None
            super().resume_writing()

        def _abort_later(self) -> TimerHandle:
            return self.loop.call_later(seconds, self.transport.abort)

    return Bounded


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, address = resolve(host, port)
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise UnavailableError(
            f"Cannot listen on {host}:{port}: {error.strerror}.",
            "Stop the program that uses the port, or set LAKE_COLLECTOR_HOST and LAKE_COLLECTOR_PORT.",
        ) from error
    return listener


def _most_connections(wanted: int) -> int:
    """Raise the limit on open files; return the number of connections that leave spare files for everything else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    allowed = max(1, max(soft, most) - _SPARE_FILES)
    if allowed < wanted:
        structlog.get_logger().warning("fewer connections", expected=wanted, allowed=allowed, hint="Raise ulimit -n.")
    return min(wanted, allowed)


def _forward_logs() -> None:
    for name, level in (("uvicorn", logging.ERROR), ("librdkafka", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.handlers = [Forward()]
        logger.propagate = False
