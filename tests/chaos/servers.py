"""A MinIO that can be killed and restarted, and a proxy in front of it that causes faults."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import msgspec
from tests.chaos.environment import ROOT, clean_environment
from tests.chaos.orders import write_whole
from tests.chaos.processes import Process, wait_until
from tests.servers import MINIO, Minio, ServerError, answers, free_port

MITMDUMP = ROOT / "target" / "mitmproxy" / "bin" / "mitmdump"


class MinioServer:
    """A MinIO server that keeps its folder and its port across restarts."""

    def __init__(self, folder: Path) -> None:
        if not MINIO.is_file():
            raise ServerError(f"{MINIO.relative_to(ROOT)} is missing: make setup-test")
        folder.mkdir(parents=True)
        self._folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        self.minio = Minio(f"http://{self.address}", "chaos-root", "chaos-secret", folder / "data")
        self._console = f"127.0.0.1:{free_port()}"
        self._process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.end_all()

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        self._process.end_all()

    def restart(self) -> None:
        """Start the server again after a kill."""
        self._process = self._start()

    def _start(self) -> Process:
        environment = clean_environment() | {
            "MINIO_ROOT_USER": self.minio.access_key,
            "MINIO_ROOT_PASSWORD": self.minio.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }
        command = [str(MINIO), "server", "--quiet", "--address", self.address, "--console-address", self._console]
        process = Process([*command, str(self.minio.folder)], environment, self._folder / "log")
        _ready(process, lambda: answers(f"{self.minio.endpoint_url}/minio/health/ready"))
        return process


@dataclass(frozen=True)
class Rule:
    """Action of the proxy, and the requests that it applies to.

    Parameters
    ----------
    act
        ``delay`` by `seconds`, ``refuse`` with a 503, ``reset`` the connection, or ``hold`` until the rule is lifted.
    request
        Regular expression that is found in method and path.
    phase
        ``request``: before it is passed on; ``response``: after MinIO has handled it, before its answer is passed on.
    every, once
        Strike each n-th matching request only; only the first one of these.
    drop
        Break the connection after a hold instead of continuing.
    """

    act: str
    request: str = ""
    phase: str = "request"
    every: int = 1
    once: bool = False
    drop: bool = False
    seconds: float = 0.0
    number: int = 0


class Proxy:
    """mitmproxy in front of a server; everything passes until a rule is in force."""

    def __init__(self, server: str, folder: Path) -> None:
        if not MITMDUMP.is_file():
            raise ServerError(f"{MITMDUMP.relative_to(ROOT)} is missing: tests/chaos/run.sh --setup")
        folder.mkdir(parents=True)
        self._rule, self._hits = folder / "rule.json", folder / "hits"
        self._hits.touch()
        self._number = 0
        port = free_port()
        self.endpoint_url = f"http://127.0.0.1:{port}"
        environment = clean_environment() | {
            "CHAOS_RULE": str(self._rule),
            "CHAOS_HITS": str(self._hits),
            "PYTHONPATH": "",
        }
        command = [str(MITMDUMP), "--quiet", "--mode", f"reverse:http://{server}", "--listen-host", "127.0.0.1"]
        command += ["--listen-port", str(port), "--scripts", str(Path(__file__).with_name("proxy_addon.py"))]
        # Requests are signed with the host name that the client sees. S3 does not use HTTP/2.
        command += ["--set", "keep_host_header=true", "--set", "http2=false", "--set", f"confdir={folder}"]
        self._process = Process(command, environment, folder / "log")
        _ready(self._process, lambda: answers(f"{self.endpoint_url}/minio/health/ready"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.end_all()

    def enforce(self, rule: Rule) -> None:
        """Enforce a rule, which replaces an earlier one."""
        self._number += 1
        write_whole(self._rule, msgspec.json.encode(asdict(replace(rule, number=self._number))))

    def lift(self) -> None:
        """Let everything pass again."""
        self._rule.unlink(missing_ok=True)

    def struck(self) -> list[str]:
        """Return the requests that the newest rule has struck: method and path."""
        lines = (line.partition(" ") for line in self._hits.read_text().splitlines())
        return [request for number, _, request in lines if number == str(self._number)]

    def hits(self) -> int:
        """Return the number of requests that the newest rule has struck."""
        return len(self.struck())


def _ready(process: Process, answers: Callable[[], bool]) -> None:
    if not wait_until(lambda: answers() or not process.alive, 60) or not process.alive:
        process.end_all()
        raise ServerError(f"A server did not start: {process.last_words()}")
