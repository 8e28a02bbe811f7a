"""The lease: one consumer for each stream, and a dead one blocks no other."""

import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from tests.selection import first_by_default
from tests.servers import PostgresServer

from lakeproof.errors import UnavailableError
from lakeproof.state import lease as module
from lakeproof.state.database import transaction
from lakeproof.state.lease import Lease, LeaseHeldError, QueryState, expiries, lease, state_of
from lakeproof.state.schema import LEASES

HOLD = """
import sys, time
from lakeproof.state.lease import lease
with lease(sys.argv[1], "events"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=first_by_default(["sqlite", "postgres"]))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_database()
    return f"sqlite:///{tmp_path / 'log.db'}"


@pytest.fixture
def holder(database: str) -> "subprocess.Popen[str]":
    """Start another process that holds the lease."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, database], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_consumer_is_refused_with_a_clear_line(database: str, holder: "subprocess.Popen[str]") -> None:
    try:
        with (
            pytest.raises(LeaseHeldError, match=f"'events' is already run by process {holder.pid} on"),
            lease(database, "events"),
        ):
            pass
        with lease(database, "sensors"):
            pass
    finally:
        holder.kill()
        holder.wait()


def test_a_killed_consumer_blocks_nobody(database: str, holder: "subprocess.Popen[str]") -> None:
    holder.kill()
    holder.wait()
    with lease(database, "events"):
        pass


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="Linux has namespaces")
def test_a_consumer_in_another_container_of_the_same_name_keeps_its_lease(
    database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its process id has no meaning here, so only its lease says whether it lives."""
    other = tmp_path / "pid"
    other.touch()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(module, "_PROCESSES", other)
        elsewhere.setattr(psutil.Process, "create_time", lambda _: 1.0)
        module.Lease(module.open_database(database), "events").take()
    assert state_of(database, "events") is QueryState.RUNNING
    with pytest.raises(LeaseHeldError) as refused:
        module.Lease(module.open_database(database), "events").take()
    assert f"by process {os.getpid()} on {platform.node()}." in refused.value.message
    now = time.time() + module.LEASE_SECONDS + 1
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: now))
    assert state_of(database, "events") is QueryState.DIED
    module.Lease(module.open_database(database), "events").take()


def test_a_consumer_in_another_namespace_of_processes_keeps_its_lease(database: str) -> None:
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("this kernel, or the container of the test, allows no namespaces")
    program = [*command, sys.executable, "-c", HOLD, database]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            assert state_of(database, "events") is QueryState.RUNNING
            with pytest.raises(LeaseHeldError, match=f"by process 1 on {platform.node()}"), lease(database, "events"):
                pass
        finally:
            process.kill()


def test_a_lease_of_an_earlier_version_is_held_until_it_expires(database: str) -> None:
    """It has only the name of the machine, which may be that of two containers."""
    held = module.Lease(module.open_database(database), "events")
    held.take()
    with transaction(held._engine) as connection:
        connection.execute(LEASES.update().values(host=platform.node(), started=1.0))
    assert state_of(database, "events") is QueryState.RUNNING
    with pytest.raises(LeaseHeldError, match=f"by process {os.getpid()} on {platform.node()}"):
        module.Lease(module.open_database(database), "events").take()
    held.check()
    held.give_back()
    module.Lease(module.open_database(database), "events").take()


def test_given_back_it_is_free_at_once(database: str) -> None:
    for _ in range(3):
        with lease(database, "events"):
            pass


def test_a_lease_that_ran_out_is_taken_and_its_holder_notices(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.time()]
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: now[0]))
    first, second = (module.Lease(module.open_database(database), "events") for _ in range(2))
    first.take()  # without a thread that renews it, as if suspended
    now[0] += module.LEASE_SECONDS - 1
    with pytest.raises(LeaseHeldError):
        second.take()
    now[0] += 2
    second.take()
    second.check()
    with pytest.raises(LeaseHeldError, match="took over"):
        first.check()


def test_without_its_database_a_lease_fails_in_one_line_and_hides_no_other_error(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_the_table(held: Lease) -> None:
        with transaction(held._engine) as connection:
            connection.exec_driver_sql("DROP TABLE leases")
        with pytest.raises(
            UnavailableError, match=r"Cannot use the landing log: (no such table|relation .* does not exist)"
        ):
            held.check()
        raise KeyError("what went wrong first")

    with pytest.raises(KeyError, match="what went wrong first"), lease(database, "events") as held:
        lose_the_table(held)
    assert "the lease was not released" in capsys.readouterr().out


def test_a_step_of_the_clock_kills_no_holder(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with lease(database, "events") as held:
        before = psutil.Process.create_time
        monkeypatch.setattr(psutil.Process, "create_time", lambda process: before(process) + 2)
        held.check()
        assert state_of(database, "events") is QueryState.RUNNING
        with pytest.raises(LeaseHeldError):
            module.Lease(module.open_database(database), "events").take()


def test_a_lease_is_renewed_while_it_is_held(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RENEWALS", 300)  # one every 0.1 s
    with lease(database, "events") as held:
        before, end = expiries(database, ["events"])["events"], time.monotonic() + 120
        while expiries(database, ["events"])["events"] <= before:
            assert time.monotonic() < end
            time.sleep(0.1)
        with pytest.raises(LeaseHeldError):
            module.Lease(module.open_database(database), "events").take()
        held.check()
