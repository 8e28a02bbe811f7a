"""The same commands on a Spark standalone cluster whose workers see neither the driver's files nor its Python."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import pytest
from tests.chaos.processes import Process, wait_until
from tests.cluster import Cluster
from tests.consumer.test_secrets import RECORDING
from tests.pages import blocks
from tests.servers import ROOT, SPARK_JARS, Minio, PostgresServer

from lakeproof.settings import Settings, settings_of
from lakeproof.storage import open_storage
from reader.connect import connect

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.s3, pytest.mark.timeout(5400)]

PAGE = "docs/operations/cluster.md"
PASSWORD = "secret-of-postgres"
PATIENCE = 1800.0  # of a busy machine
EVENT = {"user_id": "u", "event_timestamp": "2026-11-21T06:00:00Z", "event_type": "page_view", "properties": {}}


@dataclass(frozen=True)
class Lake:
    """A lake on MinIO and Postgres, and the variables for its programs."""

    variables: Mapping[str, str]
    folder: Path  # of the driver
    secrets: tuple[str, ...]

    @property
    def settings(self) -> Settings:
        return settings_of(self.variables)

    def land(self, name: str, first: int, count: int) -> None:
        records = [EVENT | {"event_id": str(number)} for number in range(first, first + count)]
        root = self.settings.landing.uri
        content = json.dumps(records).encode()
        open_storage(root, self.settings.s3).write_new(f"{root}/events/{name}.json", content)

    def environment(self, **more: str) -> dict[str, str]:
        return os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | self.variables | more

    def run(self, *command: str, **more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", *command],
            env=self.environment(**more),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def count(self, table: str) -> tuple[int, int]:
        """Return the number of rows in a table, and of different events."""
        with connect(self.settings) as session:
            (found,) = session.sql(f"SELECT count(*), count(DISTINCT event_id) FROM {table}").fetchall()
        return found[0], found[1]

    def check(self, records: int) -> None:
        """Check that nothing is lost or duplicated, and verify is clean."""
        assert self.count("bronze.events") == self.count("silver.events") == (records, records)
        verified = self.run("reader", "verify", "events")
        assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.fixture(scope="module")
def cluster(
    minio: Minio, tmp_path_factory: pytest.TempPathFactory, monkeypatch_module: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    monkeypatch_module.setattr("tests.servers.PATIENCE", PATIENCE)
    own = minio.environment()
    keys = {name: own[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, keys, [tmp_path_factory.getbasetemp()]) as running:
        yield running


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def lake(minio: Minio, bucket: str, postgres: PostgresServer, tmp_path: Path) -> Lake:
    database = postgres.new_database(PASSWORD)
    variables = minio.environment() | {
        "LAKE_HOME": str(tmp_path / "home"),
        "LAKE_LANDING": f"s3://{bucket}/landing",
        "LAKE_WAREHOUSE": f"s3://{bucket}/warehouse",
        "LAKE_CHECKPOINTS": f"s3://{bucket}/checkpoints",
        "LAKE_CATALOG_URI": database,
        "LAKE_LANDING_LOG_URI": database,
        "LAKE_CONTRACTS": str(ROOT / "contracts"),
        "LAKE_GOLD": str(ROOT / "gold"),
        "LAKE_JARS": str(SPARK_JARS),
        "LAKE_SPARK_UI_PORT": "0",
    }
    return Lake(variables, tmp_path, (PASSWORD, minio.secret_key))


def on(cluster: Cluster) -> dict[str, str]:
    """Return the settings changed on the page."""
    return {"LAKE_SPARK_MASTER": cluster.master.uri, "LAKE_SPARK_PYTHON": cluster.python, "LAKE_EXECUTORS": "2"}


def said(done: "subprocess.CompletedProcess[str]", event: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    return next((line for line in lines if line["event"] == event), {})


def test_workers_see_neither_the_files_of_the_driver_nor_its_python(cluster: Cluster, tmp_path: Path) -> None:
    """Otherwise the tests below would prove nothing. Skipped where the machine permits no mount namespace."""
    (tmp_path / "file").touch()
    for worker in cluster.workers:
        root = Path(f"/proc/{worker.process.pid}/root")
        assert not list((root / str(ROOT)[1:]).iterdir())
        assert not (root / str(tmp_path / "file")[1:]).exists()
        assert not {"LAKE_HOME", "PYTHONPATH", "VIRTUAL_ENV"} & worker.process.environ().keys()


def test_the_page_starts_master_and_workers_as_they_are_started_here(cluster: Cluster) -> None:
    master, worker = (block for block in blocks(PAGE, "sh") if "spark-class" in block)
    assert "pyspark.__file__" in master
    assert "AWS_SECRET_ACCESS_KEY" in worker
    for block, server in ((master, cluster.master), (worker, cluster.workers[0])):
        written = block.splitlines()[-1].removesuffix(" &").split()[1:]  # the arguments of spark-class
        here = server.command()
        assert written[0] in here
        options = dict(pairwise(here))
        for name, value in pairwise(written):
            if name in ("--cores", "--memory"):
                assert options[name] == value
            elif name.startswith("--"):
                assert name in options
    wheel = next(block for block in blocks(PAGE, "text") if "pip install" in block)
    assert f"lakeproof-{version('lakeproof')}-py3-none-any.whl[consumer]" in wheel


def test_from_one_machine_to_two_workers_by_three_settings(cluster: Cluster, lake: Lake) -> None:
    """The newcomer's path on the page, which exposes no secret."""
    before, path = (block for block in blocks(PAGE, "sh") if "consumer run" in block and "submit" not in block)
    changes = dict(re.findall(r"^export (\w+)=(\S+)$", path, re.MULTILINE))
    commands = [line.split() for line in path.splitlines() if not line.startswith("export")]
    assert changes.keys() == on(cluster).keys()
    assert [before.split(), ["reader", "verify", "events"]] == commands
    lake.land("a", 0, 1_000)
    done = lake.run(*commands[0])
    assert done.returncode == 0, done.stderr
    for number in range(8):
        lake.land(f"b-{number}", 1_000 * (number + 1), 1_000)
    # Spark's own configuration files are read as well.
    (lake.folder / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {lake.folder.as_uri()}/log\nspark.eventLog.compress false\n"
        "spark.executor.memory 768m\n"
    )
    (lake.folder / "log").mkdir()
    own = {"SPARK_CONF_DIR": str(lake.folder), "PICKLES": str(lake.folder / "pickles")}
    command = [sys.executable, "-c", RECORDING, *commands[0][1:]]
    with Process(command, lake.environment(**on(cluster), **own), lake.folder / "output") as process:
        lines = seen_command_lines(process)
        assert process.wait(PATIENCE) == 0, process.text()
    (found,) = process.said("executors")
    assert (found.values["found"], found.values["cores"]) == (2, 2)
    lake.check(9_000)
    events = "".join(path.read_text() for path in (lake.folder / "log").rglob("*") if path.is_file())
    assert '"spark.executor.memory":"768m"' in events
    assert '"spark.executor.memoryOverhead":"1g"' in events
    # Spark sends the properties of a catalog to executors, also with its tables.
    assert "s3.secret-access-key" not in events
    places = {
        "command lines": "\n".join(lines()),
        "pickled tasks": (lake.folder / "pickles").read_bytes().decode("latin-1"),
        "event log": events,
        "spark.log": (lake.settings.logs / "spark.log").read_text(),
        "log": process.text(),
        **{str(path): path.read_text(errors="replace") for path in cluster.own.glob("worker-*/work/*/*/std*")},
        **{str(path): path.read_text(errors="replace") for path in cluster.own.glob("worker-*/log")},
        "master": (cluster.master.folder / "log").read_text(),
    }
    assert "CoarseGrainedExecutorBackend" in places["command lines"]
    assert len(places["pickled tasks"]) > 10_000
    assert len(places) > 8
    assert not [(place, secret) for place, text in places.items() for secret in lake.secrets if secret in text]


def seen_command_lines(process: Process) -> Any:
    """Collect the command lines of all processes while a program runs."""
    lines, ended = set[str](), Event()

    def look() -> None:
        while process.alive and not ended.wait(0.2):
            for each in psutil.process_iter():
                with suppress(psutil.Error):
                    lines.add(" ".join(each.cmdline()))

    watching = Thread(target=look, daemon=True)
    watching.start()

    def result() -> set[str]:
        ended.set()
        watching.join()
        # Including the test's own processes: Postgres and MinIO get no secret on their command lines either.
        return lines

    return result


def test_a_python_that_differs_is_one_line(cluster: Cluster, lake: Lake) -> None:
    lake.land("a", 0, 10)
    base = f"{sys.base_prefix}/bin/python3"
    for python, words in {"/nowhere/python": "cannot run /nowhere/python", base: "pyarrow is missing, not "}.items():
        done = lake.run("consumer", "run", "events", "--available-now", **on(cluster) | {"LAKE_SPARK_PYTHON": python})
        assert done.returncode == 2, done.stderr
        assert words in said(done, "failed")["message"]
        assert "LAKE_SPARK_PYTHON" in said(done, "failed")["hint"]
        assert "Traceback" not in done.stderr


def test_a_lake_on_the_disk_of_the_driver_is_refused_before_spark_starts(cluster: Cluster, lake: Lake) -> None:
    changes = {"LAKE_CATALOG_URI": "", "LAKE_WAREHOUSE": ""}
    done = lake.run("consumer", "run", "events", "--available-now", **on(cluster), **changes)
    assert done.returncode == 2, done.stderr
    message = said(done, "failed")["message"]
    assert "LAKE_CATALOG_URI (" in message
    assert "LAKE_WAREHOUSE (" in message
    assert "LAKE_LANDING" not in message
    assert not (lake.settings.logs / "spark.log").exists()


def test_executors_without_our_packages_get_them_from_the_driver(cluster: Cluster, lake: Lake) -> None:
    packing = next(block for block in blocks(PAGE, "sh") if "cluster pack" in block)
    command, change = packing.splitlines()
    variable, file = change.removeprefix("export ").split("=")
    packed = lake.run(*command.split())
    assert packed.returncode == 0, packed.stderr
    lake.land("a", 0, 1_000)
    base = {variable: str(lake.folder / file), "LAKE_SPARK_PYTHON": f"{sys.base_prefix}/bin/python3"}
    done = lake.run("consumer", "run", "events", "--available-now", **on(cluster) | base)
    assert done.returncode == 0, done.stderr
    lake.check(1_000)


def test_what_spark_submit_says_stands_or_is_refused(cluster: Cluster, lake: Lake) -> None:
    conf, submit = next(block for block in blocks(PAGE, "sh") if "spark-submit" in block).split("\n", 1)
    lake.land("a", 0, 1_000)
    (lake.folder / "target").mkdir()
    printed = lake.run(*conf.split(" > ")[0].split(), LAKE_SPARK_PYTHON=cluster.python)
    assert printed.returncode == 0, printed.stderr
    assert not [secret for secret in lake.secrets if secret in printed.stdout]
    (lake.folder / "target" / "lakeproof.conf").write_text(printed.stdout)
    submit = submit.replace("spark://10.0.0.5:7077", f"{cluster.master.uri} --name mine --driver-memory 700m")

    def run(script: str, **more: str) -> "subprocess.CompletedProcess[str]":
        path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
        environment = lake.environment(PATH=path, **more)
        return subprocess.run(
            ["bash", "-e", "-c", script],
            env=environment,
            cwd=lake.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # spark-submit copies the driver's log to its output
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    without = run(submit.replace("--properties-file target/lakeproof.conf --load-spark-defaults", ""))
    assert without.returncode == 2
    assert "lakeproof cluster conf" in without.stdout
    other = run(submit, LAKE_DRIVER_MEMORY="3g")
    assert other.returncode == 2
    assert "spark.driver.memory=700m, but LAKE_DRIVER_MEMORY is 3g" in other.stdout
    (lake.folder / "log").mkdir()
    (lake.folder / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {lake.folder.as_uri()}/log\nspark.eventLog.compress false\n"
    )
    done = run(submit, SPARK_CONF_DIR=str(lake.folder))
    assert done.returncode == 0, done.stdout
    lake.check(1_000)
    events = "".join(path.read_text() for path in (lake.folder / "log").rglob("*") if path.is_file())
    assert '"App Name":"mine"' in events
    assert f'"spark.master":"{cluster.master.uri}"' in events
    assert '"spark.driver.memory":"700m"' in events


class Stream:
    """A consumer that runs on the cluster, and is restarted after it is killed."""

    def __init__(self, lake: Lake, cluster: Cluster) -> None:
        self._lake = lake
        self._cluster = cluster
        # Tasks decide silver, so that executors also die between its stages.
        self._environment = lake.environment(**on(cluster), LAKE_SILVER_DRIVER_ROWS="0")
        self._starts = 0
        self.process = self._start()

    def _start(self) -> Process:
        self._starts += 1
        command = [sys.executable, "-m", "consumer", "run", "events", "--trigger", "200 milliseconds"]
        return Process(command, self._environment, self._lake.folder / f"log-{self._starts}")

    def wait_for(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        return wait_until(lambda: condition() or not self.process.alive, seconds)

    def kill(self, victim: str, number: int) -> None:
        """Kill a process with SIGKILL, and restart it unless it restarts by itself."""
        workers = self._cluster.workers
        if victim == "executor":
            assert self.wait_for(lambda: any(worker.executors() for worker in workers))
            next(each for worker in workers for each in worker.executors()).kill()
        elif victim == "worker":
            workers[number % 2].kill(executors=True)
            workers[number % 2].start()
        elif victim == "master":
            self._cluster.master.kill()
            self._cluster.master.start()
        else:
            self.process.end_all()
            self.process = self._start()


@pytest.mark.parametrize("victim", ["executor", "worker", "driver", "master"])
def test_kills(cluster: Cluster, lake: Lake, victim: str) -> None:
    """SIGKILL at the start of the first micro-batch, while tasks run, and around a commit."""
    stream, batches = Stream(lake, cluster), 0
    try:
        assert stream.wait_for(lambda: bool(stream.process.said("started"))), stream.process.text()
        for number, delay in enumerate((0.0, 1.0, 4.0)):
            for _ in range(3):
                lake.land(f"{batches}", 2_000 * batches, 2_000)
                batches += 1
            time.sleep(delay)
            stream.kill(victim, number)
        assert stream.wait_for(lambda: lake_has(lake, 2_000 * batches)), stream.process.text()
        assert stream.process.alive, stream.process.text()
        stream.process.signal_itself(signal.SIGTERM)
        assert stream.process.wait(PATIENCE) == 0, stream.process.text()
    finally:
        stream.process.end_all()
    lake.check(2_000 * batches)


def lake_has(lake: Lake, records: int) -> bool:
    """Return whether silver has a number of rows; called rarely, since each call opens a DuckDB session."""
    with suppress(Exception):
        return lake.count("silver.events")[0] >= records
    return False
