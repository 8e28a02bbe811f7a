"""Contracts that change: every engine reads old and new rows, and micro-batches finish under their own contract."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.lake import Drain, SessionOf, rows
from tests.evolving import LONG, NEW, OLD, READ, V2, land, write_contract
from tests.hashes import check_hashes
from tests.selection import grid

from consumer.layers import base
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.history.apply import carry_out, plan
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from reader.connect import connect
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

NAMES = ["id", "note", "count", "ratio", "total", "place", "lines", "named", "numbers", "alias", "code"]
FILTERS = {
    "count = 7": ["old"],
    f"count >= {LONG}": ["new"],
    "count < 8": ["old"],
    "ratio > 0.09": ["new", "old"],
    "ratio < 0.11": ["new", "old"],
    "total = 1234567.89": ["old"],
    "total > 1234567.89": ["new"],
    "note IS NULL": ["old"],
    "note = 'hello'": ["new"],
    "place.a = 1": ["old"],
    f"place.a = {LONG}": ["new"],
    "place.b IS NULL": ["old"],
    "place.b = 'p'": ["new"],
    "alias = 'n'": ["old"],
    "alias > 'l'": ["new", "old"],
    "code IS NULL": ["new"],
    "place.gone = 'g'": ["old"],
}


@pytest.fixture
def settings(lake_settings: Settings, tmp_path: Path) -> Settings:
    return lake_settings.model_copy(update={"contracts": tmp_path / "contracts"})


def apply(settings: Settings) -> None:
    catalog = open_catalog(settings)
    carry_out(catalog, plan(catalog, settings, "orders"), ContractLog(settings.state.database))


def plain(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows sorted by id, with maps as dicts, and without the time column that differs between engines."""
    made = [{name: row[name] for name in NAMES} for row in found]
    return sorted((row | {"named": dict(row["named"])} for row in made), key=lambda row: row["id"])


@pytest.mark.all
def test_every_engine_reads_old_and_new_rows_together(
    settings: Settings, drain_directly: Drain, session_of: SessionOf
) -> None:
    write_contract(settings, "1.0.0")
    land(settings, "1.json", OLD)
    drain_directly(settings, "orders")
    write_contract(settings, "1.1.0", V2)
    with pytest.raises(UsageError, match="lakeproof contract apply orders"):
        drain_directly(settings, "orders")
    apply(settings)
    land(settings, "2.json", NEW, OLD | {"id": "bad", "unknown": 1})
    drain_directly(settings, "orders")

    due = [{name: row[name] for name in NAMES} for row in READ]
    table = open_catalog(settings).load_table("bronze.orders")
    assert plain(rows(settings, "bronze.orders")) == due
    session = session_of(settings)
    found = [row.asDict(recursive=True) for row in session.table("lake.bronze.orders").collect()]
    assert plain(found) == due
    with connect(settings) as duckdb:
        result = duckdb.connection.execute("SELECT * FROM bronze.orders").to_arrow_table()
        assert plain(result.to_pylist()) == due
        for condition, ids in FILTERS.items():  # bounds of the narrower type prune files
            query = f"SELECT id FROM bronze.orders WHERE {condition} ORDER BY id"
            assert [found for (found,) in duckdb.connection.execute(query).fetchall()] == ids, condition
            assert [row.id for row in session.sql(query.replace("bronze", "lake.bronze")).collect()] == ids, condition
            read = table.scan(condition, selected_fields=("id",)).to_arrow()["id"].to_pylist()
            assert sorted(read) == ids, condition
        # Spark compares old rows exactly; docs/contracts/change.md says how to do so in the other engines.
        assert [row.id for row in session.sql("SELECT id FROM lake.bronze.orders WHERE ratio > 0.1").collect()] == [
            "old"
        ]
        assert {row["id"]: row["_contract_version"] for row in rows(settings, "bronze.orders")} == {
            "old": "1.0.0",
            "new": "1.1.0",
        }
    [checked] = verify(settings, "orders", values=True)
    assert (checked.off, checked.landed.facts["sampled_rows"]) == ([], 2)
    check_hashes(settings, "orders")


@grid(table=["bronze", "dead_letters", "ledger"], lost=["nothing", "checkpoint", "checkpoint and landing log"])
def test_a_micro_batch_that_bronze_has_is_finished_under_its_contract(
    settings: Settings, drain_directly: Drain, monkeypatch: pytest.MonkeyPatch, table: str, lost: str
) -> None:
    write_contract(settings, "1.0.0")
    land(settings, "1.json", OLD)
    drain_directly(settings, "orders")

    def crash(opened: Any, *arguments: Any) -> bool:
        if opened.name.startswith(table):
            raise LakeproofError("crashed, as asked")
        return real(opened, *arguments)

    real = base.append_once
    land(settings, "2.json", OLD | {"id": "begun"}, OLD | {"id": "bad", "unknown": 1}, NEW)
    with monkeypatch.context() as patch:
        patch.setattr(base, "append_once", crash)
        with pytest.raises(LakeproofError, match="crashed"):
            drain_directly(settings, "orders")
    write_contract(settings, "1.1.0", V2)
    apply(settings)
    if lost != "nothing":
        shutil.rmtree(settings.home / "checkpoints")
    if lost == "checkpoint and landing log":
        for file in settings.home.glob("landing-log.db*"):
            file.unlink()
    land(settings, "3.json", NEW | {"id": "later"})
    drain_directly(settings, "orders")

    # If bronze was not touched, the micro-batch is formed again.
    begun = "1.1.0" if table == "bronze" else "1.0.0"
    due = {"old": "1.0.0", "later": "1.1.0"} | ({"new": begun} if begun == "1.1.0" else {"begun": begun})
    assert {row["id"]: row["_contract_version"] for row in rows(settings, "bronze.orders")} == due
    dead = [row["_contract_version"] for row in rows(settings, "dead_letters.orders")]
    assert dead == [begun] * (5 - len(due))
    assert {row["source"]: row["_contract_version"] for row in rows(settings, "ledger.orders")} == {
        "1.json": "1.0.0",
        "2.json": begun,
        "3.json": "1.1.0",
    }
    check_hashes(settings, "orders")
