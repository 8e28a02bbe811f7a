"""HTTP load with wrk, as fast as the server answers, and at a given rate."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import SideFailedError

_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = io.open("{body}", "rb"):read("*a")
"""
_PAUSES = """
math.randomseed(os.time())
function delay()
  return math.floor(-{pause} * math.log(1 - math.random()))
end
"""
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True)
class Load:
    """Results of a run of load.

    Parameters
    ----------
    posts
        Number of 2xx answers.
    refused
        Number of other answers.
    errors
        Number of broken connections and timeouts.
    seconds
        Duration.
    p50, p99
        Seconds from a post to its answer.
    """

    posts: int
    refused: int
    errors: int
    seconds: float
    p50: float
    p99: float

    @property
    def posts_per_second(self) -> float:
        """Accepted posts per second."""
        return self.posts / self.seconds


def as_fast_as_possible(url: str, body: Path, connections: int, seconds: int) -> Load:
    """Send posts with wrk: each connection sends the next post when it has an answer."""
    script = body.with_suffix(".lua")
    script.write_text(_SCRIPT.format(body=body))
    return _wrk(url, script, connections, seconds)


def at_a_rate(url: str, body: Path, connections: int, seconds: int, posts_per_second: float) -> Load:
    """Send posts with wrk: each connection waits for a random time before its next post, like users.

    The actual rate is a little below `posts_per_second`, because the answers take time, too.
    """
    script = body.with_suffix(".pauses.lua")
    pause = connections / posts_per_second * 1000
    script.write_text(_SCRIPT.format(body=body) + _PAUSES.format(pause=pause))
    return _wrk(url, script, connections, seconds)


def read_wrk(text: str) -> Load:
    """Parse the summary printed by wrk.

    Raises
    ------
    SideFailedError
        The text is not a summary.
    """
    requests = re.search(r"(\d+) requests in ([\d.]+)(\w+)", text)
    p50, p99 = (re.search(rf"^\s+{share}%\s+([\d.]+)(\w+) *$", text, re.MULTILINE) for share in (50, 99))
    if not (requests and p50 and p99):
        raise SideFailedError(f"wrk printed no figures:\n{text}")
    other = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    refused = int(other[1]) if other else 0
    return Load(
        int(requests[1]) - refused,
        refused,
        sum(map(int, errors.groups())) if errors else 0,
        float(requests[2]) * _UNITS[requests[3]],
        float(p50[1]) * _UNITS[p50[2]],
        float(p99[1]) * _UNITS[p99[2]],
    )


def _wrk(url: str, script: Path, connections: int, seconds: int) -> Load:
    if shutil.which("wrk") is None:
        raise SideFailedError("wrk is missing: apt-get install wrk")
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--timeout=30s", "--latency", "-s", str(script), url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SideFailedError(f"wrk ended with exit code {done.returncode}:\n{done.stderr}")
    return read_wrk(done.stdout)
