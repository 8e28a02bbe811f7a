"""What all tests share: a real MinIO, fresh buckets, and settings that nothing outside the test can change."""

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

from lakeproof.settings import S3Settings, Settings
from lakeproof.storage.s3 import s3_client

# CI runs the same examples each time; new ones are found where somebody is there to look at them.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

ROOT = Path(__file__).parents[1]
MINIO = ROOT / "target" / "bin" / "minio"


@dataclass(frozen=True)
class Minio:
    """A running MinIO server and its root key."""

    endpoint_url: str
    access_key: str
    secret_key: str
    folder: Path

    def environment(self) -> dict[str, str]:
        """The ``AWS_*`` variables for a process that is to use it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }

    def settings(self) -> S3Settings:
        """The same as settings."""
        return S3Settings(
            _env_file=None,
            endpoint_url=self.endpoint_url,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
        )


@pytest.fixture(scope="session", autouse=True)
def _own_environment() -> Iterator[None]:
    """Keep the caller's ``LAKE_*`` and ``AWS_*`` variables out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("LAKE_", "AWS_"))]:
            patch.delenv(name)
        # Neither the instance metadata service nor a profile of the user's may answer for a key.
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        yield


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """A MinIO server for the whole test run."""
    if not MINIO.is_file():
        pytest.fail(f"{MINIO} is missing: run `make setup-test`", pytrace=False)
    folder = tmp_path_factory.mktemp("minio")
    address, console = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    server = Minio(f"http://{address}", "test-root", "test-secret", folder / "data")
    environment = os.environ | {
        "MINIO_ROOT_USER": server.access_key,
        "MINIO_ROOT_PASSWORD": server.secret_key,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    command = [str(MINIO), "server", "--quiet", "--address", address, "--console-address", console, str(server.folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait_until_ready(server, process, folder / "log")
        yield server
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def bucket(minio: Minio) -> str:
    """Name of a new, empty bucket."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    s3_client(minio.settings()).create_bucket(Bucket=name)
    return name


@pytest.fixture
def s3_settings(minio: Minio) -> S3Settings:
    """How to reach the test's MinIO."""
    return minio.settings()


@pytest.fixture
def lake_settings(tmp_path: Path) -> Settings:
    """Settings of an embedded lake in a fresh folder."""
    return Settings(
        _env_file=None,
        home=tmp_path / "lake",
        contracts=ROOT / "contracts",
        jars=ROOT / "target" / "jars" / "spark",
        s3=S3Settings(_env_file=None),
    )


@pytest.fixture
def s3_lake_settings(tmp_path: Path, bucket: str, s3_settings: S3Settings) -> Settings:
    """Settings of a lake whose data and checkpoints lie in a fresh bucket; catalog and landing log stay local."""
    return Settings(
        _env_file=None,
        home=tmp_path / "lake",
        landing=f"s3://{bucket}/landing",
        warehouse=f"s3://{bucket}/warehouse",
        checkpoints=f"s3://{bucket}/checkpoints",
        contracts=ROOT / "contracts",
        jars=ROOT / "target" / "jars" / "spark",
        s3=s3_settings,
    )


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(server: Minio, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{server.endpoint_url}/minio/health/ready", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    pytest.fail(f"MinIO did not start:\n{log.read_text()}", pytrace=False)
