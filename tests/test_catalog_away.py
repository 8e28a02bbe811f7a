"""A REST catalog that goes away once this process has opened it: each caller reports an outage, not a stack trace."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import changed, variables
from tests.servers import RestCatalogServer
from typer.testing import CliRunner

from consumer.cli import app as consumer_app
from consumer.layers.bronze.replay import ReplayLayer
from consumer.sources.files.source import FileSource
from lakeproof.catalog import open_catalog
from lakeproof.cli import app
from lakeproof.demo.run import _require_same_origin
from lakeproof.demo.streams import DemoStream
from lakeproof.doctor import Program, checks_for, examine
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings, settings_of
from lakeproof.state.proofs import ProofKind
from reader.connect import connect
from reader.verify.book.book import Book

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a lake whose catalog has answered this process, and is stopped."""
    folder = tmp_path_factory.mktemp("away")
    settings = settings_of({"LAKE_HOME": folder / "lake", "LAKE_CONTRACTS": ROOT / "contracts"})
    with RestCatalogServer(folder / "server", settings.catalog.warehouse_uri) as server:
        settings = changed(settings, LAKE_CATALOG="rest", LAKE_CATALOG_URI=server.uri)
        open_catalog(settings).create_namespace("bronze")
    return settings


def told(settings: Settings, call: Callable[[Settings], object]) -> LakeproofError:
    with pytest.raises(LakeproofError) as caught:
        call(settings)
    return caught.value


def doctor(settings: Settings) -> None:
    (check,) = (each for each in checks_for(settings, Program.READER) if each.name == "catalog")
    (found,) = examine([check])
    assert found.error
    raise found.error


def environment(settings: Settings) -> dict[str, str]:
    return {name: str(value) for name, value in variables(settings).items()}


def contract_apply(settings: Settings) -> None:
    error = CliRunner().invoke(app, ["contract", "apply", "events"], env=environment(settings)).exception
    assert error
    raise error


def demo(settings: Settings) -> None:
    (settings.home / "checkpoints").mkdir(parents=True, exist_ok=True)
    _require_same_origin(settings, DemoStream.EVENTS, kafka=False)


def replay(settings: Settings) -> None:
    source = FileSource(settings, "events", "bronze-events", True)
    ReplayLayer(settings, "events", source, of_topic=False)._untouched()


@pytest.mark.parametrize("call", [doctor, contract_apply, demo, replay])
def test_the_outage_is_reported(away: Settings, call: Callable[[Settings], object]) -> None:
    error = told(away, call)
    assert (error.exit_code, error.retryable) == (3, True)
    assert error.message.startswith("Cannot read the catalog: ConnectionError")
    assert error.hint


def test_a_retention_that_the_outage_prevents_can_be_tried_again(away: Settings) -> None:
    command = ["retain", "events", "--older-than", "30d"]
    done = CliRunner().invoke(consumer_app, command, env=environment(away))
    assert done.output.startswith("events: Cannot read the catalog: ConnectionError")
    assert done.exit_code == 3


def test_manifests_that_verify_cannot_read(lake_settings: Settings) -> None:
    catalog = open_catalog(lake_settings)
    catalog.create_namespace("gold")
    rows = pa.table({"id": [1]})
    table = catalog.create_table("gold.things", rows.schema)
    table.append(rows)
    snapshot = table.current_snapshot()
    assert snapshot
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    with connect(lake_settings) as session:
        book = Book(lake_settings, session, "things", ProofKind.ALL)
        with pytest.raises(UnavailableError, match="Cannot read the catalog"):
            book.changed_times(table, "gold.things", snapshot.snapshot_id, "id")
