"""A MinIO server for a benchmark."""

import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import ROOT, WORK, SideFailedError
from lakeproof.settings import S3Settings
from lakeproof.storage.s3 import s3_client

_SERVER = ROOT / "target" / "bin" / "minio"
_KEY, _SECRET = "bench-root", "bench-secret"
_READY_SECONDS = 60
_UPLOADS = 8


@dataclass(frozen=True)
class Minio:
    """A running server."""

    endpoint_url: str
    pid: int

    def environment(self) -> dict[str, str]:
        """Return the ``AWS_*`` variables for a process that uses the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
        }

    def lake(self, bucket: str) -> dict[str, str]:
        """Return the ``AWS_*`` variables, and ``LAKE_*`` variables for a lake in a bucket."""
        folders = ("landing", "warehouse", "checkpoints")
        return self.environment() | {f"LAKE_{name.upper()}": f"s3://{bucket}/{name}" for name in folders}

    def settings(self) -> S3Settings:
        """Return the settings for this process."""
        return S3Settings(endpoint_url=self.endpoint_url, access_key_id=_KEY, secret_access_key=_SECRET)

    def make_bucket(self, name: str) -> None:
        """Create an empty bucket."""
        s3_client(self.settings()).create_bucket(Bucket=name)

    def upload(self, bucket: str, prefix: str, root: Path, paths: Iterable[Path]) -> None:
        """Upload files below a prefix, each with its path relative to `root`."""
        client = s3_client(self.settings())

        def put(path: Path) -> None:
            client.put_object(Bucket=bucket, Key=f"{prefix}/{path.relative_to(root)}", Body=path.read_bytes())

        with ThreadPoolExecutor(_UPLOADS) as pool:
            list(pool.map(put, paths))


@contextmanager
def run_minio() -> Iterator[Minio]:
    """Run a server on a free port, with its data in a temporary folder."""
    if not _SERVER.is_file():
        raise SideFailedError("MinIO is missing: `make setup-test` builds it.")
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="minio-", dir=WORK, ignore_cleanup_errors=True) as folder:
        address, console = f"127.0.0.1:{_free_port()}", f"127.0.0.1:{_free_port()}"
        quiet = {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
        environment = os.environ | quiet | {"MINIO_ROOT_USER": _KEY, "MINIO_ROOT_PASSWORD": _SECRET}
        command = [
            str(_SERVER),
            "server",
            "--quiet",
            "--address",
            address,
            "--console-address",
            console,
            f"{folder}/data",
        ]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait_until_ready(f"http://{address}", process)
            yield Minio(f"http://{address}", process.pid)
        finally:
            process.terminate()
            process.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(endpoint_url: str, process: "subprocess.Popen[bytes]") -> None:
    # Bypass a proxy in the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with opener.open(f"{endpoint_url}/minio/health/ready", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SideFailedError("MinIO did not start.")
