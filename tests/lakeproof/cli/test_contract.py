"""`lakeproof contract apply`: output about outages and data products."""

import shutil
from pathlib import Path

import pytest
from tests.lost_answers import PostgresProxy
from tests.servers import PostgresServer
from typer.testing import CliRunner

from lakeproof.cli import app
from lakeproof.errors import UnavailableError

CONTRACT = Path(__file__).parents[3] / "contracts" / "events.yaml"


def test_a_lost_answer_is_an_outage_and_the_next_run_completes(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing: list[bool] = []
    proxy = PostgresProxy(postgres.port, lambda tag: bool(losing) and tag == "COMMIT")
    contract = tmp_path / "contracts" / "events.yaml"
    contract.parent.mkdir()
    shutil.copy(CONTRACT, contract)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKE_CATALOG_URI", proxy.through(postgres.new_database()))

    def apply() -> object:
        return CliRunner().invoke(app, ["contract", "apply", "events"]).exception

    assert apply() is None
    text = contract.read_text().replace("version: 1.1.0", "version: 1.2.0")
    field = "      - name: channel\n        logicalType: string\n        physicalType: string\n"
    contract.write_text(text.replace("    properties:\n", f"    properties:\n{field}", 1))
    losing.append(True)
    error = apply()
    assert proxy.lost
    assert isinstance(error, UnavailableError), error
    losing.clear()
    assert apply() is None
    proxy.close()


def test_products_that_no_longer_fit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contract, product = tmp_path / "contracts" / "events.yaml", tmp_path / "gold" / "visits.yaml"
    for path in (contract, product):
        path.parent.mkdir()
    shutil.copy(CONTRACT, contract)
    fields = "silver: events\nkeys: [product_id]\nwindow: {size: 1 hour}\nmeasures: {n: count(*)}\n"
    product.write_text(f"name: visits\n{fields}")
    monkeypatch.chdir(tmp_path)

    def apply() -> str:
        result = CliRunner().invoke(app, ["contract", "apply", "events"])
        assert result.exception is None
        return result.output

    assert "visits.yaml" not in apply()
    text = contract.read_text().replace("version: 1.1.0", "version: 1.2.0").replace("name: product_id", "name: sku")
    renamed = "customProperties: [{property: renamedFrom, value: product_id}]"
    contract.write_text(text.replace("name: sku\n", f"name: sku\n        {renamed}\n"))
    output = apply()
    assert "sku: renamed from product_id" in output
    assert "visits.yaml" in output
    assert "unknown field 'product_id'" in output
