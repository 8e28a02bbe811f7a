"""Rejected settings and required ones, before Spark starts on a cluster."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lakeproof.cluster import (
    check_reachable,
    executor_defaults,
    executor_properties,
    jars_of_executors,
    places_of,
    quoted_option,
    submit_properties,
)
from lakeproof.doctor import Program, check_environment
from lakeproof.errors import UsageError
from lakeproof.settings import settings_of

MASTER = {"LAKE_SPARK_MASTER": "spark://master:7077"}
REMOTE = {
    **MASTER,
    "LAKE_WAREHOUSE": "s3://lake/warehouse",
    "LAKE_CHECKPOINTS": "s3://lake/checkpoints",
    "LAKE_CATALOG_URI": "postgresql://me@db/lake",
    "LAKE_LANDING_LOG_URI": "postgresql://me@db/lake",
}
LOCAL = {
    "LAKE_WAREHOUSE": "/lake/100%/warehouse",
    "LAKE_CHECKPOINTS": "/lake/100%/checkpoints",
    "LAKE_CATALOG_URI": "sqlite:////lake/100%25/catalog.db",
    "LAKE_LANDING_LOG_URI": "sqlite:////lake/100%25/log.db",
}


def reachable(variables: Mapping[str, object]) -> str:
    settings = settings_of(variables)
    return check_reachable(settings, places_of(settings))


def test_a_lake_that_all_machines_reach_is_accepted() -> None:
    assert reachable(REMOTE) == "spark://master:7077"


def test_on_one_machine_a_folder_is_reached_by_all_tasks() -> None:
    assert reachable(LOCAL) == "local[*]"


@pytest.mark.parametrize("variable", LOCAL)
def test_each_place_that_only_the_driver_sees_is_refused(variable: str) -> None:
    with pytest.raises(UsageError) as refused:
        reachable(REMOTE | {variable: LOCAL[variable]})
    assert f"do not see {variable} (/lake/100%/" in refused.value.message
    assert "LAKE_SPARK_SHARED" in refused.value.hint


def test_all_of_them_are_listed_at_once_and_other_places_of_a_command_too() -> None:
    with pytest.raises(UsageError) as refused:
        check_reachable(settings_of(MASTER), places_of(settings_of(LOCAL)) | {"--parquet": "file:///out"})
    assert all(f"{name} (/" in refused.value.message for name in (*LOCAL, "--parquet"))


@pytest.mark.parametrize(
    ("shared", "accepted"),
    [("/lake", True), ("/mnt, /lake/100%", True), ("/lak", False), ("/lake/100%/checkpoints", False)],
)
def test_folders_that_are_declared_as_shared_are_accepted(shared: str, accepted: bool) -> None:
    variables = {**MASTER, **LOCAL, "LAKE_SPARK_SHARED": shared}
    if accepted:
        reachable(variables)
    else:
        with pytest.raises(UsageError, match="LAKE_WAREHOUSE"):
            reachable(variables)


def test_a_comma_too_many_shares_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    variables = {**REMOTE, "LAKE_WAREHOUSE": "warehouse", "LAKE_SPARK_SHARED": "/mnt/lake, ,"}
    assert settings_of(variables).spark.shared == "/mnt/lake"
    with pytest.raises(UsageError, match="LAKE_WAREHOUSE"):
        reachable(variables)


def test_a_path_that_leads_out_of_a_shared_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    for folder in (shared, own):
        folder.mkdir()
    (shared / "out").symlink_to(own)
    (own / "into").symlink_to(shared)
    monkeypatch.chdir(shared)
    variables = {**REMOTE, "LAKE_SPARK_SHARED": str(shared)}
    for warehouse in ("../own", f"{shared}/../own", str(shared / "out"), str(own / "into")):
        with pytest.raises(UsageError, match="LAKE_WAREHOUSE"):
            reachable(variables | {"LAKE_WAREHOUSE": warehouse})
    (tmp_path / "link").symlink_to(shared)
    for folder in ("../shared", f"{own}/../shared"):
        reachable(variables | {"LAKE_SPARK_SHARED": folder, "LAKE_WAREHOUSE": str(shared / "warehouse")})
    linked = {"LAKE_SPARK_SHARED": str(tmp_path / "link"), "LAKE_WAREHOUSE": str(tmp_path / "link" / "warehouse")}
    reachable(variables | linked)


def test_a_rest_catalog_says_itself_where_tables_are() -> None:
    changes = {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": "http://catalog:8181", "LAKE_WAREHOUSE": None}
    reachable(REMOTE | changes)


def test_the_consumer_and_doctor_refuse_before_anything_else() -> None:
    with pytest.raises(UsageError, match="which do not see"):
        check_environment(settings_of({**MASTER, **LOCAL, "LAKE_CONTRACTS": "/nowhere"}), Program.CONSUMER)


def test_an_environment_that_was_not_packed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        reachable(REMOTE | {"LAKE_SPARK_ENVIRONMENT": str(tmp_path / "a.tar.gz")})
    assert f"lakeproof cluster pack {tmp_path}/a.tar.gz" in refused.value.hint


def test_executors_have_room_for_python_unless_somebody_says_otherwise() -> None:
    settings = settings_of(REMOTE | {"LAKE_EXECUTOR_CORES": "4"})
    assert executor_defaults(settings) == {"spark.executor.memory": "1g", "spark.executor.memoryOverhead": "4g"}
    assert executor_properties(settings) == {"spark.executor.cores": "4"}
    asked = settings_of(REMOTE | {"LAKE_EXECUTOR_MEMORY": "2g", "LAKE_EXECUTOR_OVERHEAD": "3g"})
    assert executor_properties(asked) == {"spark.executor.memory": "2g", "spark.executor.memoryOverhead": "3g"}


def test_a_standalone_master_is_asked_for_executors_by_cores() -> None:
    asked = executor_properties(settings_of(REMOTE | {"LAKE_EXECUTORS": "3", "LAKE_EXECUTOR_CORES": "2"}))
    assert (asked["spark.executor.instances"], asked["spark.cores.max"]) == ("3", "6")
    assert "spark.cores.max" not in executor_properties(settings_of(REMOTE | {"LAKE_EXECUTORS": "3"}))


def test_the_python_of_executors_is_the_same_path_unless_it_is_said_or_sent() -> None:
    assert settings_of(REMOTE).spark.python_of_executors == sys.executable
    assert settings_of(REMOTE | {"LAKE_SPARK_PYTHON": "/opt/python"}).spark.python_of_executors == "/opt/python"
    sent = settings_of(REMOTE | {"LAKE_SPARK_ENVIRONMENT": "s3://lake/environment.tar.gz"})
    assert sent.spark.python_of_executors == f"python3.{sys.version_info.minor}"
    asked = executor_properties(sent)
    assert asked["spark.archives"] == f"s3://lake/environment.tar.gz#{asked['spark.executorEnv.PYTHONPATH']}"


def test_jars_that_only_a_driver_uses_stay_there() -> None:
    jars = ["/jars/iceberg-spark-runtime.jar", "/jars/sqlite-jdbc-3.jar", "/jars/postgresql-42.jar", "/jars/s3-2.jar"]
    assert jars_of_executors(jars) == ["/jars/iceberg-spark-runtime.jar", "/jars/s3-2.jar"]


def test_a_spark_submit_is_given_what_is_fixed_once_its_jvm_runs_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "iceberg.jar").touch()
    (tmp_path / "sqlite-jdbc.jar").touch()
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    settings = settings_of({"LAKE_JARS": tmp_path, "LAKE_CATALOG_URI": "postgresql://me:secret@db/lake", **keys})
    found = submit_properties(settings)
    assert found["spark.driver.extraClassPath"] == f"{tmp_path}/iceberg.jar:{tmp_path}/sqlite-jdbc.jar"
    assert found["spark.jars"] == f"{tmp_path}/iceberg.jar"
    assert f"-Dlakeproof.logs={settings.logs}" in found["spark.driver.extraJavaOptions"]
    assert not {"spark.master", "spark.driver.memory", "spark.app.name"} & found.keys()
    assert "secret" not in str(found)


def test_a_spark_submit_leaves_defaults_to_the_files_of_spark(tmp_path: Path) -> None:
    """What its properties file says takes precedence over ``spark-defaults.conf``; the session sets our defaults."""
    (tmp_path / "iceberg.jar").touch()
    found = submit_properties(settings_of({"LAKE_JARS": tmp_path}))
    assert not executor_defaults(settings_of({})).keys() & found.keys()
    asked = submit_properties(settings_of({"LAKE_JARS": tmp_path, "LAKE_EXECUTOR_MEMORY": "2g"}))
    assert asked["spark.executor.memory"] == "2g"


def test_an_environment_may_be_in_a_folder_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would take the # behind a path with a space for a part of the name."""
    monkeypatch.chdir(tmp_path)
    asked = executor_properties(settings_of(REMOTE | {"LAKE_SPARK_ENVIRONMENT": "a b/100%.tar.gz"}))
    assert asked["spark.archives"].partition("#")[0] == f"{tmp_path.as_uri()}/a%20b/100%25.tar.gz"


def test_options_of_a_jvm_are_quoted_as_spark_splits_them() -> None:
    assert quoted_option('-Da="b\\c d"') == '"-Da=\\"b\\\\c d\\""'
