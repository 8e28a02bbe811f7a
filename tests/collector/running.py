"""A collector as a process, a client that shares no code with it, and a consumer of the topic."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition
from tests.servers import PATIENCE, free_port

ROOT = Path(__file__).parents[2]
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def event(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "type": "page_view", "event": {"page": "/", "timestamp": "2026-11-01T00:00:00Z"}} | more


class Collector:
    """A running collector.

    Parameters
    ----------
    folder
        Folder for its log.
    settings
        ``LAKE_*`` variables.
    program
        Arguments of Python.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, str], program: Sequence[str] = ("-m", "collector", "run")
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._program = program
        # Not a port that the kernel chooses: while this collector restarts, a client could get it.
        self.settings = {"LAKE_COLLECTOR_PORT": str(free_port()), **settings}
        self.port = 0
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        """Start the collector, and wait until it listens; the port remains the same."""
        self.log = self.folder / f"log-{time.monotonic_ns()}"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *self._program],
                cwd=self.folder,
                env=os.environ | self.settings,
                stdout=output,
                stderr=output,
            )
        listening = wait_for(lambda: self.logged("listening") or (self.process.poll() is not None and [{}]))
        self.port = listening[0].get("port", 0)
        self.settings["LAKE_COLLECTOR_PORT"] = str(self.port)

    def ready(self) -> Self:
        wait_for(lambda: self.get("/readyz").status == 200)
        return self

    def logged(self, name: str) -> list[dict[str, Any]]:
        """Return the log lines with an event name."""
        written = self.log.read_text().rpartition("\n")[0]  # without a line that is being written
        return [line for line in map(json.loads, written.splitlines()) if line["event"] == name]

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def post(self, events: Any, **headers: str) -> Answer:
        return self.send(json.dumps(events).encode(), **headers)

    def send(self, body: bytes, **headers: str) -> Answer:
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", "/collect", body, JSON | own)

    def request(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def holds(self, size: int) -> bool:
        """Whether posts that are not answered have `size` bytes: it has read so much of them."""
        return f"collector_queue_bytes {size}.0\n" in self.get("/metrics").body.decode()

    def refuses(self) -> bool:
        """Whether it does not listen any more."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE).close()
        except ConnectionRefusedError:
            return True
        return False

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the process to end; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@dataclass(frozen=True)
class Landed:
    """A message in a topic."""

    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: dict[str, bytes]


def messages(servers: str, topic: str) -> list[Landed]:
    """Return all messages in a topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
    try:
        numbers = consumer.list_topics(topic, PATIENCE).topics[topic].partitions
        partitions = [TopicPartition(topic, each) for each in numbers]
        ends = {each.partition: consumer.get_watermark_offsets(each, PATIENCE) for each in partitions}
        consumer.assign([TopicPartition(topic, each.partition, ends[each.partition][0]) for each in partitions])
        left = sum(end - begin for begin, end in ends.values())
        found: list[Landed] = []
        while len(found) < left:
            for message in consumer.consume(1000, 0.1):
                assert message.error() is None, message.error()
                place = message.partition(), message.offset()
                found.append(Landed(*place, message.key(), message.value(), dict(message.headers() or ())))
        return found
    finally:
        consumer.close()


def at(found: Iterable[Landed]) -> dict[tuple[int, int], Landed]:
    """Return messages by partition and offset."""
    return {(each.partition, each.offset): each for each in found}


def wait_for(found: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until a function returns a true value; a refused connection counts as false."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if result := found():
                return result
        except OSError:
            pass
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
