"""Fixtures for all tests: real servers, fresh buckets, and settings isolated from the caller's environment."""

import gc
import importlib
import os
import resource
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from tests.durations import Durations
from tests.lakes import embedded
from tests.selection import ALL
from tests.servers import (
    KafkaServer,
    Minio,
    MinioServer,
    PostgresServer,
    RegistryServer,
    RestCatalogServer,
    Server,
    ServerError,
)

from lakeproof.settings import S3Settings, Settings, settings_of
from lakeproof.storage.s3 import s3_client

# Tests run the same examples each time, everywhere; `make fuzz` looks for new ones.
# If the variable CI is set, Hypothesis's defaults are derandomized, so each profile is explicit.
# A test with its own number of examples gets it from `selection.examples`.
hypothesis.settings.register_profile("few", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.register_profile("all", derandomize=True, deadline=None, max_examples=100)
hypothesis.settings.register_profile("fuzz", derandomize=False, max_examples=1_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("all" if ALL else "few")

# Hypothesis also draws constants from local modules that are imported so far. With several workers, these depend on the
# tests that ran before, and so would the examples.
_is_local = providers.is_local_module_file
providers.is_local_module_file = lambda path: not hypothesis.settings.default.derandomize and _is_local(path)

ROOT = Path(__file__).parents[1]
MAX_MEMORY = min(8 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
"""Memory limit of the test process in bytes; a JVM or server that it starts may use as much again."""
ServerT = TypeVar("ServerT", bound=Server)


def pytest_configure(config: pytest.Config) -> None:
    """Limit the memory of the tests, and prevent the programs that they start from inheriting ignored signals."""
    if not hasattr(config, "workerinput"):  # pytest-xdist's workers report to their parent
        config.pluginmanager.register(Durations(config))
    _answer_ignored_signals()
    # A runaway test gets a MemoryError before it uses up the machine.
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY or soft > MAX_MEMORY:
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, hard))


def pytest_collection_finish() -> None:
    """Keep what has been loaded for all tests out of garbage collections: a full one takes half a second otherwise."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start slow tests first; deselect those that only ``ALL=1`` runs, unless a test is named on the command line."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)  # at the end, other processes would be idle
    if ALL or any("::" in argument for argument in config.args):
        return
    # -m selects those that are also marked `long`.
    left_out = [item for item in items if item.get_closest_marker("all") and not item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.get_closest_marker("long") or not item.get_closest_marker("all")]


def _answer_ignored_signals() -> None:
    """Handle signals ignored by nohup (SIGHUP) or a shell's background (SIGINT): handlers are not inherited."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="session", autouse=True)
def _own_environment() -> Iterator[None]:
    """Keep the caller's ``LAKE_*`` and ``AWS_*`` variables out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("LAKE_", "AWS_"))]:
            patch.delenv(name)
        patch.delenv("COLUMNS", raising=False)  # set by pytest-xdist; tables would be truncated
        # Credentials must not come from the instance metadata service or the user's profile.
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        yield


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """A MinIO server for the whole test run."""
    with _started(lambda: MinioServer(tmp_path_factory.mktemp("minio"))) as server:
        yield server.minio


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A Postgres server for the whole test run; each test creates its own databases."""
    with _started(lambda: PostgresServer(tmp_path_factory.mktemp("postgres"))) as server:
        yield server


@pytest.fixture(scope="session")
def start_rest_catalog() -> Iterator[Callable[..., RestCatalogServer]]:
    """Start REST catalogs, each with its own folder and warehouse; they stop at the end of the test run."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(_started(lambda: RestCatalogServer(*arguments)))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka broker for the whole test run; each test creates its own topics."""
    with _started(lambda: KafkaServer(tmp_path_factory.mktemp("kafka"))) as server:
        yield server


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """A schema registry for the whole test run; each test uses its own subjects."""
    with _started(lambda: RegistryServer(tmp_path_factory.mktemp("registry"))) as server:
        yield server


@pytest.fixture(scope="session")
def native() -> ModuleType:
    """The module of the native judge."""
    return native_judge()


def native_judge() -> ModuleType:
    """Return the native judge of the current sources. Its tests are skipped on a machine without cargo."""
    has_cargo = shutil.which("cargo") is not None
    try:
        module = importlib.import_module("native_judge")
    except ImportError as error:
        if has_cargo:
            pytest.fail(f"There is no native judge ({error}), but cargo: run `make setup-native`.", pytrace=False)
        pytest.skip("cargo is missing, so there is no native judge")
    stamp = ROOT / ".venv" / "native.stamp"
    if has_cargo and not stamp.exists():
        pytest.fail("The sources of the native judge are unknown: run `make setup-native`.", pytrace=False)
    lines = stamp.read_text().splitlines() if stamp.exists() else []
    for digest, path in (line.split(maxsplit=1) for line in lines):
        # The other line has the compiler's version.
        if path.startswith("src/") and not _has(ROOT / path, digest):
            pytest.fail("The native judge was built from other sources: run `make setup`.", pytrace=False)
    return module


def _has(path: Path, digest: str) -> bool:
    return path.exists() and sha256(path.read_bytes()).hexdigest() == digest


@pytest.fixture
def bucket(minio: Minio) -> str:
    """Name of a new, empty bucket."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    s3_client(minio.settings()).create_bucket(Bucket=name)
    return name


@pytest.fixture
def s3_settings(minio: Minio) -> S3Settings:
    """Settings for the test's MinIO."""
    return minio.settings()


@pytest.fixture
def lake_settings(tmp_path: Path) -> Settings:
    """Settings of an embedded lake in a fresh folder."""
    return embedded(tmp_path / "lake")


@pytest.fixture
def s3_lake_settings(tmp_path: Path, bucket: str, s3_settings: S3Settings) -> Settings:
    """Settings of a lake with data and checkpoints in a fresh bucket; catalog and landing log are local."""
    return settings_of(
        {
            "LAKE_HOME": tmp_path / "lake",
            "LAKE_LANDING": f"s3://{bucket}/landing",
            "LAKE_WAREHOUSE": f"s3://{bucket}/warehouse",
            "LAKE_CHECKPOINTS": f"s3://{bucket}/checkpoints",
            "LAKE_CONTRACTS": ROOT / "contracts",
            "LAKE_JARS": ROOT / "target" / "jars" / "spark",
        }
    ).model_copy(update={"s3": s3_settings})


def _started(start: Callable[[], ServerT]) -> ServerT:
    try:
        return start()
    except ServerError as error:
        pytest.fail(str(error), pytrace=False)
