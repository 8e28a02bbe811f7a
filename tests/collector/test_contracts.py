"""Assumptions of collector/server.py about uvicorn, whose protocol and server classes it extends."""

import asyncio
import inspect
from typing import Any

import pytest
import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from collector.server import _bounded_protocol, _Server

OVERRIDDEN = {
    "connection_made": ["transport"],
    "connection_lost": ["exc"],
    "data_received": ["data"],
    "on_headers_complete": [],
    "on_message_complete": [],
    "_start_asgi_task": ["cycle", "app"],
    "pause_writing": [],
    "resume_writing": [],
}


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_the_protocol_has_the_methods_that_are_overridden(name: str) -> None:
    found = getattr(HttpToolsProtocol, name, None)
    assert found, f"collector/server.py overrides HttpToolsProtocol.{name}: without it, a limit is not kept"
    assert list(inspect.signature(found).parameters)[1:] == OVERRIDDEN[name], f"collector/server.py overrides {name}"
    assert name in vars(_bounded_protocol(1, 1))


async def _nothing(scope: Any, receive: Any, send: Any) -> None: ...


async def _started() -> HttpToolsProtocol:
    config = uvicorn.Config(_nothing, log_config=None, ws="none", lifespan="off")
    config.load()
    return HttpToolsProtocol(config, ServerState(), {})


def test_the_protocol_keeps_connections_pipelined_requests_and_its_loop() -> None:
    async def names() -> dict[str, type]:
        protocol = await _started()
        return {name: type(getattr(protocol, name)) for name in ("connections", "pipeline", "loop", "transport")}

    found = asyncio.run(names())
    assert found["connections"] is set
    assert found["pipeline"].__name__ == "deque"
    assert issubclass(found["loop"], asyncio.AbstractEventLoop)


def test_each_request_starts_a_task_of_its_own_by_the_method_that_is_overridden() -> None:
    """In ``_start_asgi_task``: otherwise the collector would not notice that a client has disconnected."""
    started = []

    class Noted(HttpToolsProtocol):
        def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
            started.append(cycle.disconnected)

    class Transport(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

        def is_closing(self) -> bool:
            return False

    async def request() -> None:
        config = uvicorn.Config(_nothing, log_config=None, ws="none", lifespan="off")
        config.load()
        protocol = Noted(config, ServerState(), {})
        protocol.connection_made(Transport())
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")

    asyncio.run(request())
    assert started == [False], "collector/server.py relies on _start_asgi_task(cycle, app) and cycle.disconnected"


def test_the_server_leaves_signals_to_one_method_and_ends_by_one_attribute() -> None:
    server = _Server(uvicorn.Config(_nothing))
    assert "capture_signals" in vars(uvicorn.Server), "collector/server.py replaces it"
    assert server.should_exit is False
    assert "capture_signals" in inspect.getsource(uvicorn.Server.serve), "serve() must use it"
