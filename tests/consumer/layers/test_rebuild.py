"""Rebuilt tables of a layer; the tests of each layer check their content."""

from collections.abc import Mapping

import pytest
from pyiceberg.catalog import Catalog
from tests.consumer.lake import Drain, SessionOf
from tests.consumer.layers.silver.lakes import NOON, check, decide_all, land, silver_layer

from consumer.layers.rebuild import rebuild
from lakeproof.catalog import open_catalog, replace_tables
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings

pytestmark = pytest.mark.spark


@pytest.mark.all
def test_a_rebuild_that_was_interrupted_between_two_tables_is_finished(
    lake_settings: Settings, drain_directly: Drain, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A REST catalog renames one table after the other."""
    spark = session_of(lake_settings)
    land(lake_settings, "1.json", ("a", NOON, "x"), ("a", NOON, "x"), ("a", NOON, "y"), ("b", NOON, "x"))
    drain_directly(lake_settings)
    decide_all(spark, lake_settings)
    before = check(lake_settings)
    layer = silver_layer(lake_settings)

    def stop_after_the_first(catalog: Catalog, tables: Mapping[str, str]) -> None:
        replace_tables(catalog, dict(list(tables.items())[:1]))
        raise LakeproofError("stopped, as asked")

    monkeypatch.setattr("consumer.layers.rebuild.replace_tables", stop_after_the_first)
    with pytest.raises(LakeproofError, match="as asked"):
        rebuild(lake_settings, layer, lambda: spark)
    monkeypatch.undo()
    rebuild(lake_settings, layer, lambda: pytest.fail("all tables are filled"))
    assert check(lake_settings) == before
    assert sorted(name for _, name in open_catalog(lake_settings).list_tables("silver")) == [
        "events", "events_conflicts", "events_late"]  # fmt: skip
