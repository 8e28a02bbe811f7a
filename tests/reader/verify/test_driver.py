"""The driver uses no connection for the whole time of a proof, and no stream that fails hides faults of the others."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from tests.lakes import changed
from tests.programs import forked
from tests.reader.verify.lake import BRONZE, Lake
from typer.testing import CliRunner

from lakeproof import catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.recorded import Recorded, record_topic
from lakeproof.settings import Settings
from lakeproof.tables.names import silver_tables
from lakeproof.tables.schemas import ensure_message_columns, ensure_silver_tables, ensure_tables
from reader.cli import app
from reader.verify import registry
from reader.verify.check import Check, Result, Scope
from reader.verify.checks.sources import SECTION
from reader.verify.driver import CannotCheckError, verify

Environment = Callable[[Settings], dict[str, str]]

EVENT = {"user_id": "a", "event_id": "x", "event_timestamp": "2026-01-01T10:00:00Z", "event_type": "page_view"}


def test_a_proof_ends_though_the_connections_it_began_with_are_gone(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(lake_settings)
    lake.land({"0.json": json.dumps([EVENT]).encode()})
    lake.consume(micro_batch=0)
    opened: list[Catalog] = []
    open_catalog = catalog.open_catalog

    def open_it(settings: Settings) -> Catalog:
        opened.append(open_catalog(settings))
        return opened[-1]

    def refuse(*_: object) -> None:
        raise ConnectionError("closed, since it was idle for hours")

    def wait(_: Scope) -> tuple[Result, ...]:
        for each in opened:
            monkeypatch.setattr(each, "load_table", refuse)
        return ()

    monkeypatch.setattr(catalog, "open_catalog", open_it)
    monkeypatch.setattr(registry, "CHECKS", [*registry.CHECKS, Check("wait", SECTION, wait)])
    (found,) = verify(lake_settings, "events")
    assert opened
    assert found.clean


@pytest.fixture
def lake(lake_settings: Settings) -> Lake:
    """A lake of the stream events, with one lost unit."""
    made = Lake(lake_settings)
    made.land({"0.json": json.dumps([EVENT]).encode()})
    made.consume()
    made.edit(BRONZE, lambda rows: rows[1:])
    return made


def with_unreachable_brokers(lake: Lake) -> Settings:
    """Add the stream clickstream, whose brokers do not respond."""
    ensure_tables(lake.catalog, load_contract(lake.settings.contracts, "clickstream"))
    ensure_message_columns(lake.catalog, "clickstream")
    record_topic(lake.catalog, "clickstream", Recorded("id", Offsets.of("clicks", {0: 0})))
    own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "LAKE_KAFKA_TIMEOUT_SECONDS": 1}
    return changed(lake.settings, **own)


def run(settings: Settings, environment: Environment, *arguments: str) -> tuple[int, str, str]:
    kafka = settings.kafka
    own = {
        "LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "LAKE_KAFKA_TIMEOUT_SECONDS": str(kafka.timeout_seconds),
    }
    done = CliRunner().invoke(app, ["verify", *arguments], env=environment(settings) | own, catch_exceptions=False)
    return int(done.exit_code), done.stdout, done.stderr


def test_faults_are_reported_though_another_stream_cannot_be_checked(
    lake: Lake, reader_environment: Environment
) -> None:
    settings = with_unreachable_brokers(lake)
    code, out, err = run(settings, reader_environment, "--format", "json")
    assert code == 1
    assert err.startswith("Error: Could not check clickstream. ")
    report = json.loads(out)
    clicks, events = report["streams"]
    assert (report["clean"], report["complete"]) == (False, False)
    assert (clicks["stream"], clicks.keys()) == ("clickstream", {"stream", "error", "hint"})
    assert [each["status"] for each in events["sources"]] == ["lost"]
    code, out, err = run(settings, reader_environment)
    assert code == 1
    assert out.endswith("Not checked: clickstream.\n")
    assert "Not clean: some units are lost, doubled or changed" in out
    assert err.startswith("Error: Could not check clickstream. ")


@pytest.mark.all
def test_without_faults_the_exit_code_says_that_a_stream_was_not_checked(
    lake_settings: Settings, reader_environment: Environment
) -> None:
    settings = with_unreachable_brokers(Lake(lake_settings))
    assert run(settings, reader_environment, "events")[0] == 0
    code, out, _ = run(settings, reader_environment)
    assert (code, "Not checked: clickstream." in out) == (2, True)


@pytest.mark.all
def test_a_stream_without_its_contract_is_reported(lake: Lake, tmp_path: Path, reader_environment: Environment) -> None:
    folder = tmp_path / "contracts"
    shutil.copytree(lake.settings.contracts, folder)
    for stream in ("sensors", "clickstream"):
        ensure_tables(lake.catalog, load_contract(folder, stream))
    ensure_silver_tables(lake.catalog, load_contract(folder, "sensors"), silver_tables("sensors"))
    lake.catalog.create_table("ledger.of_another_program", lake.catalog.load_table(BRONZE).schema())
    (folder / "sensors.yaml").unlink()
    settings = changed(lake.settings, LAKE_CONTRACTS=folder)
    code, out, err = run(settings, reader_environment, "--format", "json")
    assert code == 1
    _, _, sensors = streams = json.loads(out)["streams"]
    assert [each["stream"] for each in streams] == ["clickstream", "events", "sensors"]
    assert sensors["error"] == ("Could not check sensors. ledger.sensors exists, but contracts/sensors.yaml does not.")
    assert err.splitlines() == [f"Error: {sensors['error']}", "  Restore the contract."]
    (folder / "events.yaml").unlink()
    (folder / "clickstream.yaml").unlink()
    code, out, err = run(settings, reader_environment)
    assert (code, out, err.count("Restore the contract.")) == (2, "Not checked: clickstream, events, sensors.\n", 3)


@pytest.mark.all
def test_ctrl_c_is_no_error_of_a_stream(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = with_unreachable_brokers(lake)

    def interrupted(_: Scope) -> tuple[Result, ...]:
        raise LakeproofError("INTERRUPT Error: Interrupted!") from duckdb.InterruptException("Interrupted!")

    monkeypatch.setattr(registry, "CHECKS", [Check("interrupted", SECTION, interrupted)])
    with pytest.raises(CannotCheckError):
        verify(settings)


@pytest.mark.all
def test_a_report_that_cannot_be_written_is_no_fault(lake: Lake, reader_environment: Environment) -> None:
    for more in ([], ["--format", "json"], ["--follow"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*forked("reader"), "verify", "events", *more],
                env=reader_environment(lake.settings),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=60,
            )
        assert (done.returncode, done.stderr.splitlines()[0]) == (
            2,
            "Error: Cannot write to standard output: No space left on device.",
        )
