"""How Spark is started."""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from structlog.testing import capture_logs
from tests.consumer.lake import SessionOf, rows
from tests.consumer.taking import layer_queries
from tests.consumer.test_cli import land
from tests.lakes import changed, variables

from consumer.queries.application import Query, run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from consumer.spark import session
from consumer.spark.session import _daemon_ahead, _environment, _forward, pools_with
from lakeproof.settings import Settings

pytestmark = pytest.mark.spark


def test_workers_run_this_python_with_the_installed_pyspark(spark: SparkSession) -> None:
    def describe(_: int) -> tuple[str, str]:
        import pyspark

        return sys.prefix, pyspark.__file__

    ((prefix, package),) = spark.sparkContext.parallelize([0], 1).map(describe).collect()
    assert prefix == sys.prefix
    assert ".zip" not in package


def workers(spark: SparkSession) -> list[psutil.Process]:
    """Return the Python workers and the daemon that forked them, after a task."""
    (worker,) = spark.sparkContext.parallelize([0], 1).map(lambda _: os.getpid()).collect()
    daemon = psutil.Process(worker).parent()
    assert daemon
    assert "consumer.spark.worker_daemon" in daemon.cmdline()
    return [daemon, *daemon.children(recursive=True)]


def listening_addresses(process: psutil.Process) -> set[str]:
    return {
        connection.laddr.ip for connection in process.net_connections("tcp") if connection.status == psutil.CONN_LISTEN
    }


def test_spark_listens_on_this_machine_only(spark: SparkSession) -> None:
    gateway: Any = SparkContext._gateway
    jvm = psutil.Process(gateway.proc.pid)
    listening = listening_addresses(jvm)
    assert listening
    for worker in [*jvm.children(recursive=True), *workers(spark)]:
        with suppress(psutil.NoSuchProcess):  # a worker of an earlier test that is just ending
            listening |= listening_addresses(worker)
    assert all(ip.removeprefix("::ffff:") in {"127.0.0.1", "::1"} for ip in listening), listening


def test_spark_page_can_end_nothing(spark: SparkSession) -> None:
    """Its address answers GET without a login."""
    assert spark.sparkContext.getConf().get("spark.ui.killEnabled") == "false"


def test_signals_to_our_group_do_not_reach_the_jvm(spark: SparkSession) -> None:
    gateway: Any = SparkContext._gateway
    jvm = psutil.Process(gateway.proc.pid)
    for process in [jvm, *jvm.children(recursive=True), *workers(spark)]:
        with suppress(ProcessLookupError):
            assert os.getpgid(process.pid) != os.getpgid(0)
    assert os.getsid(jvm.pid) != os.getsid(0)


def test_local_files_are_written_without_starting_processes(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's own class runs chmod for each file."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path((tmp_path / "a").as_uri())
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())  # type: ignore[attr-defined]
    assert files.getClass().getSimpleName() == "BareLocalFileSystem"
    files.create(path).close()
    files.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission("640"))
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_urgent_pools_get_cores_before_others(spark: SparkSession, tmp_path: Path) -> None:
    name, jvm = 'alerts-"<&>"', spark._jvm
    assert jvm
    scheduler = jvm.org.apache.spark.scheduler
    root = scheduler.Pool("", scheduler.SchedulingMode.FAIR(), 0, 0)
    (tmp_path / "pools.xml").write_text(pools_with([name], {}))
    context = spark.sparkContext._jsc.sc()
    before = context.conf().get("spark.scheduler.allocation.file")
    context.conf().set("spark.scheduler.allocation.file", (tmp_path / "pools.xml").as_uri())
    scheduler.FairSchedulableBuilder(root, context).buildPools()
    context.conf().set("spark.scheduler.allocation.file", before)
    assert root.getSchedulableByName(name).minShare() == 1000
    assert root.getSchedulableByName("default").minShare() == 0


def test_what_the_jvm_says_is_passed_on_but_for_one_warning(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"WARNING: Using incubator modules: jdk.incubator.vector\nOutOfMemoryError\nlast")
    os.close(theirs)
    monkeypatch.setattr("consumer.spark.session.logs_are_json", lambda: False)
    _forward(ours)
    assert capfd.readouterr().err == "OutOfMemoryError\nlast"


def test_what_the_jvm_says_is_a_line_of_a_log_that_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.spark.session.logs_are_json", lambda: True)
    ours, theirs = os.pipe()
    os.write(theirs, b'WARNING: Using incubator modules: jdk.incubator.vector\n"Out of memory"\n\xff')
    os.close(theirs)
    with capture_logs() as logs:
        _forward(ours)
    assert [(line["event"], line["message"]) for line in logs] == [
        ("Spark's JVM", '"Out of memory"'),
        ("Spark's JVM", "\N{REPLACEMENT CHARACTER}"),
    ]


def test_the_start_leaves_nothing_in_our_environment(spark: SparkSession) -> None:
    """Only the JVM and its workers inherit the variables that they need, including secrets."""
    assert not {
        "PYSPARK_PYTHON",
        "SPARK_LOCAL_IP",
        "LAKEPROOF_PYTHON",
        "LAKEPROOF_NICENESS",
        "LAKEPROOF_LAUNCH",
        "LAKEPROOF_DAEMON",
    } & {*os.environ}
    gateway: Any = SparkContext._gateway
    assert psutil.Process(gateway.proc.pid).environ()["LAKEPROOF_PYTHON"] == sys.executable


def test_the_environment_of_the_jvm_is_not_that_of_our_threads(lake_settings: Settings) -> None:
    """Native code of other threads looks up variables meanwhile, and would crash, as it did once."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    ours = os.environ
    with _environment(lake_settings, {"LAKEPROOF_TEST": "1"}):
        assert os.environ["LAKEPROOF_TEST"] == "1"
        os.environ["LAKEPROOF_TEST_2"] = "2"
        assert os.environ["PATH"] == ours["PATH"]
        assert [getenv(name) for name in (b"LAKEPROOF_TEST", b"LAKEPROOF_TEST_2")] == [None, None]
    assert os.environ is ours
    assert not {"LAKEPROOF_TEST", "LAKEPROOF_TEST_2"} & {*ours}


OUT_OF_MEMORY = """
from contextlib import suppress
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from consumer.spark.session import start_session
from lakeproof.settings import load_settings

jvm = start_session(load_settings(), "test")._jvm
with suppress(Py4JError, ConnectionError):
    jvm.java.util.ArrayList(2**31 - 1)
print(SparkContext._gateway.proc.wait(60))
"""


@pytest.mark.all
def test_a_jvm_that_is_out_of_memory_ends(lake_settings: Settings) -> None:
    environment = {name: str(value) for name, value in variables(lake_settings).items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY],
        env={**os.environ, **environment, "LAKE_SPARK_UI_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.stdout.split()[-1] == "3", done.stdout + done.stderr


PLAIN = """
import json, logging, os, sys
import psutil
from consumer.spark.session import end_session
from consumer.cli import app
from consumer.iceberg.memory import MEMORY

before, filters = dict(os.environ), list(logging.getLogger().filters)
app(["run", "events", "--to", "silver", "--available-now"], standalone_mode=False)
from pyspark import SparkConf, SparkContext
conf = dict(SparkContext._active_spark_context.getConf().getAll())
apart = os.getsid(SparkContext._gateway.proc.pid) != os.getsid(0)
end_session()
print(json.dumps({
    "shortcuts": [name for name in ("spark.python.daemon.module", "spark.hadoop.fs.file.impl",
        "spark.sql.streaming.checkpointFileManagerClass") if name in conf],
    "archive": "SharedArchiveFile" in conf["spark.driver.extraJavaOptions"],
    "apart": apart,
    "left": [child.name() for child in psutil.Process().children()],
    "changed": sorted(name for name, _ in dict(os.environ).items() ^ before.items()),
    "filters": logging.getLogger().filters != filters,
}))
"""


@pytest.mark.all
def test_plain_spark_gives_the_same_tables_and_leaves_nothing(
    lake_settings: Settings, session_of: SessionOf, tmp_path: Path
) -> None:
    """All shortcuts of the start are turned off, and the end of a session removes everything that belongs to it."""
    plain = changed(lake_settings, LAKE_HOME=tmp_path / "plain")
    for settings in (lake_settings, plain):
        land(settings, 0, 3)
        (settings.home / "landing" / "events" / "bad.json").write_text('[{"event_id": 1}, {"event_id": "0"}')
    environment = {name: str(value) for name, value in variables(plain).items() if value is not None}
    environment |= {"LAKE_SPARK_WITHOUT": "all", "LAKE_SPARK_UI_PORT": "0", "LAKE_SETTLE_SECONDS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "shortcuts": [],
        "archive": False,
        "apart": False,
        "left": [],
        "changed": [],
        "filters": False,
    }
    quick = changed(lake_settings, LAKE_SETTLE_SECONDS=0)
    once = Trigger(available_now=True)
    queries: list[Query] = [BronzeQuery(quick, "events", once), *layer_queries(quick, "events", once)]
    run_queries(quick, queries, lambda: session_of(quick), available_now=True)
    for table in ("bronze.events", "dead_letters.events", "ledger.events", "silver.events"):
        assert comparable(plain, table) == comparable(lake_settings, table), table
    assert len(comparable(plain, "silver.events")) == 3


def comparable(settings: Settings, table: str) -> list[str]:
    """Return the rows of a table, without values that differ between two runs."""
    own = {"_landed_at", "_ingested_at", "landed_at", "ingested_at", "committed_at", "checkpoint_id", "etag"}
    own |= {"bronze_hash", "dead_letters_hash"}  # hashes of rows with _ingested_at
    found = [{name: value for name, value in row.items() if name not in own} for row in rows(settings, table)]
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in found)


def test_a_path_that_is_too_long_for_a_socket_is_an_error_that_the_start_ignores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 100)))
    (tmp_path / ("x" * 100)).mkdir()
    with pytest.raises(OSError, match="too long"):
        _daemon_ahead()


@pytest.mark.parametrize(
    ("own", "environment", "is_started"),
    [
        ({}, {}, True),
        ({}, {"PYSPARK_PYTHON": sys.executable}, False),
        ({"without": "workers"}, {}, False),
        ({"master": "spark://host:7077"}, {}, False),
    ],
)
def test_the_daemon_starts_ahead_only_if_the_jvm_will_ask_for_it(
    lake_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    own: dict[str, str],
    environment: dict[str, str],
    is_started: bool,
) -> None:
    class LaunchedError(Exception):
        pass

    def launch(_: SparkConf) -> None:
        raise LaunchedError

    started: list[str] = []
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(session, "end_session", lambda: None)
    monkeypatch.setattr(session, "_daemon_ahead", lambda: started.append("") or "path")
    monkeypatch.setattr(session, "_launched_apart", launch)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = lake_settings.model_copy(update={"spark": lake_settings.spark.model_copy(update=own)})
    with pytest.raises(LaunchedError), session._environment(settings, session._of_workers(settings, False)):
        session._session(settings, SparkConf(loadDefaults=False), None)
    assert len(started) == is_started
