"""How Spark is started."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from consumer.app.session import _forward, pools_with

pytestmark = pytest.mark.spark


def test_workers_run_this_python_with_the_installed_pyspark(spark: SparkSession) -> None:
    def describe(_: int) -> tuple[str, str]:
        import pyspark

        return sys.prefix, pyspark.__file__

    ((prefix, package),) = spark.sparkContext.parallelize([0], 1).map(describe).collect()
    assert prefix == sys.prefix
    assert ".zip" not in package


def listening_addresses(process: psutil.Process) -> set[str]:
    return {
        connection.laddr.ip for connection in process.net_connections("tcp") if connection.status == psutil.CONN_LISTEN
    }


def test_spark_listens_on_this_machine_only(spark: SparkSession) -> None:
    gateway: Any = SparkContext._gateway
    jvm = psutil.Process(gateway.proc.pid)
    listening = listening_addresses(jvm)
    assert listening
    for worker in jvm.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a worker of an earlier test that ends just now
            listening |= listening_addresses(worker)
    assert all(ip.removeprefix("::ffff:") in {"127.0.0.1", "::1"} for ip in listening), listening


def test_signals_to_our_group_do_not_reach_the_jvm(spark: SparkSession) -> None:
    gateway: Any = SparkContext._gateway
    for process in (
        gateway.proc.pid,
        *(each.pid for each in psutil.Process(gateway.proc.pid).children(recursive=True)),
    ):
        with suppress(ProcessLookupError):
            assert os.getsid(process) != os.getsid(0)
            assert os.getpgid(process) != os.getpgid(0)


def test_local_files_are_written_without_starting_processes(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's own class runs chmod for each."""
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
    (tmp_path / "pools.xml").write_text(pools_with([name]))
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
    monkeypatch.setattr("consumer.app.session.logs_are_json", lambda: False)
    _forward(ours)
    assert capfd.readouterr().err == "OutOfMemoryError\nlast"


def test_what_the_jvm_says_is_a_line_of_a_log_that_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.app.session.logs_are_json", lambda: True)
    ours, theirs = os.pipe()
    os.write(theirs, b'WARNING: Using incubator modules: jdk.incubator.vector\n"Out of memory"\n\xff')
    os.close(theirs)
    with capture_logs() as logs:
        _forward(ours)
    assert [(line["event"], line["message"]) for line in logs] == [
        ("Spark's JVM", '"Out of memory"'),
        ("Spark's JVM", "\N{REPLACEMENT CHARACTER}"),
    ]
