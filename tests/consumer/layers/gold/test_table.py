"""Columns of a product's table are widened, or the table is refused, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from tests.lakeproof.gold.products import CONTRACT, product

from consumer.layers.gold import table as table_module
from consumer.layers.gold.table import ensure_gold_table, rebuild_gold_hint
from lakeproof.errors import LakeproofError
from lakeproof.gold.model import Product
from lakeproof.tables.schemas import gold_schema

SPARK: Any = None
COUNTED = "sum(CASE WHEN total > 1 THEN 1 END)"


def widened(monkeypatch: pytest.MonkeyPatch, before: Product, now: Product) -> list[Schema]:
    """Open the table of a product after a change; return the schemas to which it was widened."""
    found: list[Schema] = []
    table = SimpleNamespace(
        name="gold.spending",
        property={"product": before.digest, "comment": before.description}.get,
        schema=lambda: gold_schema(before),
        widen=found.append,
    )
    monkeypatch.setattr(table_module, "PRODUCT", "product")
    monkeypatch.setattr(table_module, "make_table", lambda *_: False)
    monkeypatch.setattr(table_module, "open_table", lambda *_: table)
    ensure_gold_table(SPARK, now, "gold.spending")
    return found


@pytest.mark.parametrize(
    ("old", "new"), [(COUNTED, COUNTED.replace("THEN 1 ", "THEN 1.00 ")), ("max(count + 1)", "max(count + 1.0)")]
)
def test_a_number_that_changes_the_type_of_a_measure_makes_another_product(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    before, now = product("sum(total)", old), product("sum(total)", new)
    assert before.digest == now.digest
    assert widened(monkeypatch, before, before) == []
    with pytest.raises(LakeproofError, match=r"gold\.spending was filled with other") as refused:
        widened(monkeypatch, before, now)
    assert refused.value.hint.endswith(rebuild_gold_hint("spending"))


def test_a_wider_field_makes_a_wider_column(monkeypatch: pytest.MonkeyPatch) -> None:
    wider = product("sum(total)", "max(total)", CONTRACT.replace("decimal(10,2)", "decimal(12,2)"))
    narrow = product("sum(total)", "max(total)")
    assert widened(monkeypatch, narrow, wider) == [gold_schema(wider)]
