"""The Python of executors is compared with the driver's, and jobs without executors are noticed."""

import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs
from tests.servers import PATIENCE

from consumer.sources.files.source import FileSource
from consumer.spark import cluster
from consumer.spark.cluster import _ANY, _JUDGE, _SAME, check_deploy_mode, check_image, differences, watch_executors
from consumer.spreading import attempted
from lakeproof.cluster import MISSING, installed
from lakeproof.errors import UsageError
from lakeproof.settings import settings_of

OURS = dict.fromkeys((*_SAME, *_ANY), "1.0") | {"Python": "3.11"}


def test_equal_versions_are_accepted_and_other_versions_of_some() -> None:
    assert differences("a", OURS, OURS, "auto") is None
    assert differences("a", OURS, OURS | {"boto3": "2.0", "numpy": "0.1"}, "native") is None


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("Python", "3.12"), ("pyarrow", "0.9"), ("lakeproof", "missing"), ("numpy", MISSING)],
)
def test_what_differs_is_one_line_that_says_where_and_what_to_do(name: str, theirs: str) -> None:
    error = differences("machine-7", OURS, OURS | {name: theirs}, "auto")
    assert error is not None
    assert f"on machine-7 is not like the driver's: {name} is {theirs}, not {OURS[name]}." in error.message
    assert "LAKE_SPARK_PYTHON" in error.hint
    assert "lakeproof cluster pack" in error.hint


def test_a_task_with_another_version_ends_before_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor may join after the start, with a Python that was updated meanwhile."""
    done = list[int]()
    attempt = attempted(done.append)
    attempt(1)
    theirs = installed() | {"pyarrow": "0.9"}
    monkeypatch.setattr("lakeproof.cluster.installed", lambda: theirs)
    refused = attempt(2)
    assert isinstance(refused, UsageError)
    assert f"is not like the driver's: pyarrow is 0.9, not {version('pyarrow')}." in refused.message
    assert "LAKE_SPARK_PYTHON" in refused.hint
    assert done == [1]


def test_a_native_judge_may_be_missing_unless_it_is_asked_for_but_not_be_another_one() -> None:
    without, other = OURS | {_JUDGE: MISSING}, OURS | {_JUDGE: "0.9"}
    with capture_logs() as logs:
        assert differences("a", OURS, without, "auto") is None
        assert differences("a", without, OURS, "auto") is None
    assert [line["executor"] for line in logs] == ["a", "a"]
    assert differences("a", OURS, without, "native") is not None
    assert differences("a", OURS, other, "auto") is not None


def test_a_driver_that_spark_submit_has_started_elsewhere_is_refused() -> None:
    for accepted in ({}, {"spark.submit.deployMode": "client"}, {"spark.kubernetes.submitInDriver": "false"}):
        check_deploy_mode(accepted.get)
    for refused in ({"spark.submit.deployMode": "cluster"}, {"spark.kubernetes.submitInDriver": "true"}):
        with pytest.raises(UsageError, match="client mode only") as error:
            check_deploy_mode(refused.get)
        assert "docs/operations/cluster.md" in error.value.hint


def test_kubernetes_needs_an_image_for_executors() -> None:
    check_image("spark://master:7077", {}.get)
    for name in ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image"):
        check_image("k8s://https://api:443", {name: "lakeproof-consumer:0.2.0"}.get)
    with pytest.raises(UsageError, match="executors on Kubernetes are started from") as error:
        check_image("k8s://https://api:443", {}.get)
    assert "spark-defaults.conf" in error.value.hint


def test_a_replay_needs_the_landing_zone_on_all_machines_as_well(tmp_path: Path) -> None:
    """Tasks would find no file, and the attempts would say that it was removed."""
    catalog: Any = SimpleNamespace(load_table=lambda _: SimpleNamespace(properties={}))
    settings = settings_of({"LAKE_SPARK_MASTER": "spark://master:7077", "LAKE_HOME": tmp_path})
    with pytest.raises(UsageError, match="do not see the landing zone of events"):
        FileSource(settings, "events", "bronze-events", True).recall(catalog)


def test_jobs_that_wait_for_an_executor_are_noticed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A master that is this machine has no executor beside the driver."""
    noticed = tmp_path / "noticed"

    def wait(_: int) -> None:
        while not noticed.exists():
            time.sleep(0.05)

    def until_logged(count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(logs) < count and time.monotonic() < deadline:
            time.sleep(0.05)

    monkeypatch.setattr(cluster, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(cluster, "_PATIENCE_SECONDS", 0.3)
    context = spark.sparkContext
    with capture_logs() as logs, ThreadPoolExecutor() as pool:
        stop = watch_executors(context, "spark://here:7077")
        try:
            time.sleep(1)
            assert logs == []
            job = pool.submit(context.parallelize([0], 1).foreach, wait)
            until_logged(1)
            noticed.touch()
            job.result()
            until_logged(2)
        finally:
            noticed.touch()
            stop()
    assert [(line["event"], line["log_level"], line["master"]) for line in logs] == [
        ("jobs wait for an executor", "warning", "spark://here:7077"),
        ("executors are back", "info", "spark://here:7077"),
    ]
