import errno
import os
import socket
import stat
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.lakes import changed

from lakeproof.doctor import Program, check_environment, checks_for, checks_of_streams, examine
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.install.jars import pyspark_folder
from lakeproof.settings import S3Settings, Settings

PROGRAMS = list(Program)


def refuse(settings: Settings, program: Program = Program.CONSUMER) -> LakeproofError:
    with pytest.raises(LakeproofError) as caught:
        check_environment(settings, program)
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.fixture
def settings(lake_settings):
    return changed(lake_settings, LAKE_SPARK_UI_PORT=0, LAKE_COLLECTOR_PORT=0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_machine_that_was_set_up_passes(settings, program):
    check_environment(settings, program)
    assert not settings.home.exists()


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_costs_no_start_much(settings, program):
    check_environment(settings, program)
    best = min(_seconds(lambda: check_environment(settings, program)) for _ in range(5))
    assert best < 0.05


def _seconds(call) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


@pytest.mark.s3
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_lake_on_s3_passes(s3_lake_settings, program):
    check_environment(changed(s3_lake_settings, LAKE_SPARK_UI_PORT=0, LAKE_COLLECTOR_PORT=0), program)


def test_no_java(settings, monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Java not found" in refuse(settings).message
    check_environment(settings, Program.PRODUCER)
    check_environment(settings, Program.READER)


def test_java_home_without_java(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert str(tmp_path) in refuse(settings).message


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
@pytest.mark.parametrize("with_release", [True, False])
def test_an_old_java(settings, monkeypatch, tmp_path, version, with_release):
    _fake_java(tmp_path, version, with_release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    error = refuse(settings)
    assert f"is Java {'8' if version.startswith('1.8') else '11'}," in error.message
    assert "17" in error.hint


@pytest.mark.parametrize("version", ["21.0.1", "22.0.2"])
def test_a_newer_java(settings, monkeypatch, tmp_path, version):
    _fake_java(tmp_path, version, True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_environment(settings, Program.CONSUMER)


@pytest.mark.parametrize("variable", ["JAVA_HOME", "PATH"])
def test_a_java_that_is_too_new_for_spark(settings, monkeypatch, tmp_path, variable):
    _fake_java(tmp_path, "25.0.1", True)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "bin" if variable == "PATH" else tmp_path))
    error = refuse(settings)
    assert error.message == f"{tmp_path / 'bin' / 'java'} is Java 25, but Spark runs on Java 17 to 22."
    assert error.hint == "Install JDK 17 or 21, or set JAVA_HOME to the folder of one."


def _fake_java(home: Path, version: str, with_release: bool) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    if with_release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')


def test_a_landing_log_whose_server_is_away(settings):
    error = refuse(changed(settings, LAKE_LANDING_LOG_URI="postgresql://me:hush@127.0.0.1:1/lake"))
    assert "Cannot use the landing log: connection failed" in error.message
    assert "hush" not in error.message


def test_another_spark_of_the_shell(settings, monkeypatch, tmp_path):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    error = refuse(settings)
    assert error.message.startswith(f"SPARK_HOME is '{tmp_path}', which is not Spark {version('pyspark')}")
    assert "Unset" in error.hint
    check_environment(settings, Program.PRODUCER)
    with monkeypatch.context() as submitted:
        submitted.setenv("PYSPARK_GATEWAY_PORT", "1")  # as spark-submit does: its JVM runs already
        check_environment(settings, Program.CONSUMER)
    (tmp_path / "jars" / f"spark-core_2.13-{version('pyspark')}.jar").touch()
    check_environment(settings, Program.CONSUMER)
    monkeypatch.setenv("SPARK_HOME", str(pyspark_folder()))
    check_environment(settings, Program.CONSUMER)


def test_no_jars(settings, tmp_path):
    error = refuse(changed(settings, LAKE_JARS=tmp_path / "none"))
    assert isinstance(error, UnavailableError)
    assert "lakeproof setup" in error.hint


def test_it_says_which_judge_runs(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "native_judge", None)
    assert _found(settings, "judge") == "python, which is slower: the native judge is not installed"
    assert _found(changed(settings, LAKE_JUDGE="python"), "judge") == "python, which is slower: LAKE_JUDGE is python"
    check_environment(settings, Program.CONSUMER)
    native = changed(settings, LAKE_JUDGE="native")
    assert "LAKE_JUDGE is native" in refuse(native).message
    check_environment(native, Program.READER)


def test_it_says_that_the_native_judge_runs(settings, native):
    assert _found(settings, "judge") == f"native {native.__version__}"


def _found(settings, name):
    (check,) = [check for check in checks_for(settings, Program.CONSUMER) if check.name == name]
    return check.look()


def test_no_contracts(settings, tmp_path):
    assert isinstance(refuse(changed(settings, LAKE_CONTRACTS=tmp_path), Program.PRODUCER), UsageError)
    check_environment(changed(settings, LAKE_CONTRACTS=tmp_path), Program.READER)


@pytest.mark.parametrize("program", [Program.PRODUCER, Program.CONSUMER])
def test_a_folder_that_cannot_be_written(settings, tmp_path, program):
    (tmp_path / "file").write_bytes(b"")
    error = refuse(changed(settings, LAKE_HOME=tmp_path / "file" / "lake"), program)
    assert "Cannot write to the folder" in error.message
    assert isinstance(refuse(changed(settings, LAKE_HOME=Path("/proc/lake")), program), UnavailableError)


def test_a_port_that_was_asked_for_must_be_free(settings):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"port {port} " in refuse(changed(settings, LAKE_SPARK_UI_PORT=port)).message
        check_environment(changed(settings, LAKE_SPARK_UI_PORT=port), Program.READER)


def test_the_default_port_in_use_is_a_warning(lake_settings):
    (check,) = [check for check in checks_for(lake_settings, Program.CONSUMER) if "port" in check.name]
    assert check.optional


@pytest.mark.s3
@pytest.mark.parametrize("program", [Program.PRODUCER, Program.CONSUMER, Program.READER])
def test_a_bucket_that_is_not_there(s3_lake_settings, program):
    error = refuse(changed(s3_lake_settings, LAKE_SPARK_UI_PORT=0, LAKE_LANDING="s3://no-such-bucket/l"), program)
    assert "no-such-bucket" in error.message
    assert error.hint.startswith("Create the bucket")


@pytest.mark.s3
def test_a_bucket_that_refuses_the_key(s3_lake_settings, s3_settings):
    s3 = S3Settings(**(s3_settings.model_dump() | {"secret_access_key": "wrong"}))
    error = refuse(s3_lake_settings.model_copy(update={"s3": s3}), Program.PRODUCER)
    assert "AWS_SECRET_ACCESS_KEY" in error.hint


def test_a_catalog_that_does_not_answer(settings):
    error = refuse(changed(settings, LAKE_CATALOG_URI="postgresql://me:hush@127.0.0.1:1/lake"), Program.READER)
    assert "hush" not in str(error)


def test_the_warehouse_of_a_rest_catalog_is_no_folder(settings):
    own = {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": "http://127.0.0.1:1", "LAKE_WAREHOUSE": "name"}
    names = [check.name for check in checks_for(changed(settings, **own), Program.CONSUMER)]
    assert "warehouse" not in names
    assert "catalog" in names


def test_the_producer_is_asked_for_its_own_target(settings, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnavailableError):
        check_environment(settings, Program.PRODUCER, landing=(tmp_path / "file" / "x").as_uri())


CONTRACTS = Path(__file__).parents[2] / "contracts"
OF_EVENTS = "landing zone of events"


def found_of_streams(settings, program=Program.CONSUMER):
    """Return the finding on the landing place of each stream, and whether it is an error."""
    findings = list(examine(checks_of_streams(settings, program)))
    assert all(finding.error.hint for finding in findings if finding.error)
    return {finding.check.name: (finding.error is not None, finding.detail) for finding in findings}


def with_landing(settings, folder, server, **changes):
    """Return settings with one contract, whose stream has its own landing address."""
    folder.mkdir()
    text = (CONTRACTS / "events.yaml").read_text()
    (folder / "events.yaml").write_text(text + f"servers:\n  - {{server: landing, {server}}}\n")
    return changed(settings, LAKE_CONTRACTS=folder, **changes)


@pytest.mark.parametrize("program", [Program.CONSUMER, Program.READER, Program.PRODUCER])
def test_each_stream_lands_somewhere_that_a_program_can_reach(settings, program):
    found = found_of_streams(settings, program)
    assert found.keys() == {f"landing zone of {path.stem}" for path in CONTRACTS.glob("*.yaml")}
    assert not [name for name, (failed, _) in found.items() if failed]
    landing = settings.home / "landing" / "events"
    landing.parent.mkdir(parents=True)
    landing.write_text("no folder")
    assert found_of_streams(settings, program)[OF_EVENTS][0]
    assert found_of_streams(settings, Program.COLLECTOR) == {}


def test_a_folder_of_somebody_else_must_be_there_and_is_not_written(settings, tmp_path):
    others = with_landing(settings, tmp_path / "contracts", f"type: local, path: {tmp_path / 'others'}")
    for program in (Program.CONSUMER, Program.PRODUCER):
        failed, detail = found_of_streams(others, program)[OF_EVENTS]
        assert (failed, "where the contract says that files of events land" in detail) == (True, True)
    (tmp_path / "others").mkdir()
    assert found_of_streams(others, Program.PRODUCER) == {OF_EVENTS: (False, (tmp_path / "others").as_uri())}
    assert list((tmp_path / "others").iterdir()) == []


@pytest.mark.s3
def test_a_bucket_of_somebody_else_must_be_there(s3_lake_settings, tmp_path):
    server = "type: s3, location: 's3://no-such-bucket/exports'"
    found = found_of_streams(with_landing(s3_lake_settings, tmp_path / "contracts", server))
    assert found[OF_EVENTS][0]
    assert "no-such-bucket" in found[OF_EVENTS][1]
    assert not any(failed for failed, _ in found_of_streams(s3_lake_settings).values())


def test_the_doctor_goes_on_after_a_failure(settings, tmp_path):
    findings = list(
        examine(checks_for(changed(settings, LAKE_JARS=tmp_path, LAKE_CONTRACTS=tmp_path), Program.CONSUMER))
    )
    assert {finding.check.name for finding in findings if finding.error} == {"jars", "contracts"}
    assert len(findings) > 6


def test_the_doctor_goes_on_where_the_user_may_not_look(settings, tmp_path, monkeypatch):
    exists = Path.exists

    def look(path):
        if path.is_relative_to(tmp_path / "forbidden"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", look)
    home = tmp_path / "forbidden" / "lake"
    changed_settings = changed(settings, LAKE_HOME=home, LAKE_JARS=home / "jars", LAKE_LOGS=home / "logs")
    findings = {each.check.name: each for each in examine(checks_for(changed_settings, Program.CONSUMER))}
    assert len(findings) > 6
    assert "LAKE_HOME" in findings["logs"].error.hint
    assert all(isinstance(each.error, LakeproofError | None) for each in findings.values())


def found_for_the_collector(settings, **changes):
    """Return messages about missing parts of a collector, by check."""
    checks = checks_for(changed(settings, **changes), Program.COLLECTOR)
    return {finding.check.name: finding.detail for finding in examine(checks) if finding.error}


def test_what_a_collector_needs(settings, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("")
    with socket.create_server(("127.0.0.1", 0)) as broker:
        servers = f"127.0.0.1:1, 127.0.0.1:{broker.getsockname()[1]}"
        own = {"LAKE_COLLECTOR_KEYS": keys, "LAKE_COLLECTOR_MAX_CONNECTIONS": 10}
        assert found_for_the_collector(settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=servers, **own) == {}


def test_what_a_collector_lacks(settings, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        found = found_for_the_collector(
            settings,
            LAKE_COLLECTOR_PORT=port,
            LAKE_COLLECTOR_KEYS=tmp_path / "none",
            LAKE_COLLECTOR_MAX_CONNECTIONS=2**60,
            LAKE_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1,nonsense:1",
        )
        assert refuse(changed(settings, LAKE_COLLECTOR_PORT=port), Program.COLLECTOR).hint.count("LAKE_COLLECTOR_PORT")
    assert found["collector port"] == f"Cannot use 127.0.0.1 port {port}: Address already in use."
    assert found["API keys"] == f"Cannot read {tmp_path / 'none'}: No such file or directory."
    assert "but LAKE_COLLECTOR_MAX_CONNECTIONS is" in found["open files"]
    assert found["Kafka"].startswith("No Kafka broker responds at 127.0.0.1:1,nonsense:1: ")


def test_a_collector_waits_for_its_broker(settings):
    check_environment(changed(settings, LAKE_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1"), Program.COLLECTOR)
