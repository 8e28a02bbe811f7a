"""The ids of contracts: kept in the ledger, used while the registry is unavailable, and never wrong."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.consumer.app.test_streams import GOOD
from tests.consumer.lake import Drain, rows
from tests.lakes import changed, variables
from tests.servers import PATIENCE, RegistryServer, free_port
from typer.testing import CliRunner, Result

from consumer.layers.bronze.replay import Replay
from consumer.queries.bronze import BronzeQuery
from consumer.queries.replay import ReplayQuery
from consumer.queries.trigger import Trigger
from consumer.sources.kafka import schema_ids
from consumer.sources.kafka.schema_ids import SchemaIds
from lakeproof.catalog import open_catalog
from lakeproof.cli import app as lakeproof
from lakeproof.contracts import load_contract
from lakeproof.errors import UnavailableError
from lakeproof.history.apply import adopt
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.recorded import Recorded, record_topic
from lakeproof.kafka.registry import IncompatibleError, Registry
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.tables.names import SCHEMA_IDS


@pytest.fixture
def lake(
    lake_settings: Settings, registry: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Return a lake with a contract that a test can edit, and with a subject of its own."""
    monkeypatch.setattr("lakeproof.kafka.registry._TIMEOUT_SECONDS", PATIENCE)  # its first answers take long
    folder = tmp_path / "contracts"
    folder.mkdir()
    (folder / "clickstream.yaml").write_bytes((lake_settings.contracts / "clickstream.yaml").read_bytes())
    return changed(
        lake_settings,
        LAKE_CONTRACTS=str(folder),
        LAKE_SCHEMA_REGISTRY_URL=registry.uri,
        LAKE_COLLECTOR_TOPIC=tmp_path.name,
    )


def edit(settings: Settings, old: str, new: str) -> None:
    path = settings.contracts / "clickstream.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def away(settings: Settings) -> Settings:
    return changed(settings, LAKE_SCHEMA_REGISTRY_URL=f"http://127.0.0.1:{free_port()}")


def ids_of(settings: Settings) -> tuple[SchemaIds, Any]:
    contract = adopt(open_catalog(settings), settings, "clickstream", ContractLog(settings.state.database))
    found = SchemaIds(settings, "clickstream")
    found.prepare(contract)
    return found, contract


@pytest.mark.all
def test_the_ledger_keeps_the_id_while_the_registry_is_away(lake: Settings) -> None:
    ids, contract = ids_of(lake)
    known = ids.of(contract)
    assert known is not None
    properties = open_catalog(lake).load_table("ledger.clickstream").properties
    assert properties[SCHEMA_IDS] == f'{{"{contract.digest}": {known}}}'
    with structlog.testing.capture_logs() as logs:
        later, _ = ids_of(away(lake))
    assert later.of(contract) == known
    assert [(line["event"], line["log_level"]) for line in logs] == [("no schema registry", "warning")]


def test_a_new_contract_has_no_id_until_the_registry_is_back(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    ids_of(lake)
    edit(lake, "version: 3.1.0", "version: 3.1.1")
    ids, contract = ids_of(away(lake))
    assert ids.of(contract) is None
    monkeypatch.setattr(ids, "_registry", SchemaIds(lake, "clickstream")._registry)
    assert ids.of(contract) is None  # the registry is not asked again at once
    monkeypatch.setattr(schema_ids, "monotonic", lambda: float("inf"))
    assert ids.of(contract) is not None


def test_an_id_is_used_once_the_ledger_has_it(lake_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = away(lake_settings)
    contract = adopt(open_catalog(settings), settings, "clickstream", ContractLog(settings.state.database))
    monkeypatch.setattr(Registry, "register", lambda *_: 7)
    ids = SchemaIds(settings, "clickstream")

    def fail(_settings: Settings) -> None:
        raise ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(schema_ids, "open_catalog", fail)
        for _ in range(2):
            with pytest.raises(UnavailableError):
                ids.of(contract)
    assert ids.of(contract) == 7
    properties = open_catalog(settings).load_table("ledger.clickstream").properties
    assert properties[SCHEMA_IDS] == f'{{"{contract.digest}": 7}}'


def test_without_a_registry_there_are_no_ids(lake: Settings) -> None:
    settings = changed(lake, LAKE_SCHEMA_REGISTRY_URL=None)
    ids, contract = ids_of(settings)
    ids.check(contract)
    assert ids.of(contract) is None
    assert SCHEMA_IDS not in open_catalog(settings).load_table("ledger.clickstream").properties


def test_an_incompatible_contract_starts_nothing_and_changes_no_table(lake: Settings) -> None:
    query = BronzeQuery(lake, "clickstream", Trigger(available_now=True))
    query.prepare()
    edit(lake, "version: 3.1.0", "version: 3.2.0")
    edit(lake, "maxLength: 64", "maxLength: 8")
    with pytest.raises(IncompatibleError) as error:
        BronzeQuery(lake, "clickstream", Trigger(available_now=True)).prepare()
    assert "$.properties.type.maxLength: 64 → 8" in error.value.message
    assert error.value.exit_code == 2
    assert len(rows(lake, "ops.schema_changes")) == 1


def apply(settings: Settings, *options: str) -> Result:
    environment = {name: str(value) for name, value in variables(settings).items()}
    return CliRunner().invoke(lakeproof, ["contract", "apply", "clickstream", *options], env=environment)


def test_apply_and_replay_ask_about_the_topic_of_the_ledger(
    lake: Settings, registry: RegistryServer, tmp_path: Path
) -> None:
    """Only the command that filled the tables named the topic."""
    ids_of(changed(lake, LAKE_KAFKA_TOPIC=f"{tmp_path.name}-incoming"))
    record_topic(open_catalog(lake), "clickstream", Recorded("id", Offsets(f"{tmp_path.name}-incoming")))
    edit(lake, "version: 3.1.0", "version: 3.1.1")
    ReplayQuery(lake, "clickstream", Replay()).prepare()
    edit(lake, "version: 3.1.1", "version: 3.2.0")
    edit(lake, "maxLength: 64", "maxLength: 8")
    refused = apply(lake)
    assert isinstance(refused.exception, IncompatibleError), refused.output
    with urllib.request.urlopen(f"{registry.uri}/subjects") as answer:
        subjects = [subject for subject in json.load(answer) if subject.startswith(tmp_path.name)]
    assert subjects == [f"{tmp_path.name}-incoming-value"]


def test_apply_asks_the_registry_before_it_changes_a_table(lake: Settings) -> None:
    ids_of(lake)
    edit(lake, "version: 3.1.0", "version: 3.2.0")
    edit(lake, "maxLength: 64", "maxLength: 8")
    for options in ([], ["--dry-run"]):
        refused = apply(lake, *options)
        assert isinstance(refused.exception, IncompatibleError), refused.output
        assert "$.properties.type.maxLength: 64 → 8" in refused.exception.message
    assert len(rows(lake, "ops.schema_changes")) == 1
    edit(lake, "maxLength: 8", "maxLength: 128")
    silent = apply(away(lake))
    assert isinstance(silent.exception, UnavailableError)
    assert "LAKE_SCHEMA_REGISTRY_URL" in silent.exception.hint
    assert len(rows(lake, "ops.schema_changes")) == 1
    assert apply(lake).stdout.startswith("clickstream: 3.1.0 → 3.2.0 applied.")
    assert len(rows(lake, "ops.schema_changes")) == 2
    # An applied contract needs no registry.
    assert apply(away(lake)).stdout == "clickstream: 3.2.0 is already applied.\n"


def test_a_contract_that_is_refused_while_the_stream_runs_has_no_id(lake: Settings) -> None:
    ids, _ = ids_of(lake)
    edit(lake, "version: 3.1.0", "version: 3.2.0")
    edit(lake, "maxLength: 64", "maxLength: 8")
    narrower = load_contract(lake.contracts, "clickstream")
    with structlog.testing.capture_logs() as logs:
        assert [ids.of(narrower), ids.of(narrower)] == [None, None]
    assert [line["event"] for line in logs] == ["schema not registered"]


@pytest.mark.spark
def test_each_row_has_the_id(lake: Settings, drain: Drain) -> None:
    landing = lake.home / "landing" / "clickstream"
    landing.mkdir(parents=True)
    (landing / "1.json").write_text(json.dumps([GOOD["clickstream"]]))
    drain(lake, "clickstream")
    (landing / "2.json").write_text(json.dumps([GOOD["clickstream"] | {"id": 2}]))
    drain(away(lake), "clickstream")
    ids, contract = ids_of(lake)
    assert [row["schema_id"] for row in rows(lake, "bronze.clickstream")] == [ids.of(contract)] * 2
