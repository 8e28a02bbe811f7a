"""The digest of a product changes exactly if the rows would."""

import json
import pickle
from decimal import Decimal

import pytest
from tests.lakeproof.gold.products import CONTRACT, PRODUCT, product

from lakeproof.contracts.model import PrimitiveType
from lakeproof.contracts.rules.expression import Call, Column, Literal, Operator
from lakeproof.gold.meaning import meaning

OTHER = {
    "name": ("name: spending", "name: spent"),
    "stream": ("silver: orders", "silver: returns"),
    "keys": ("keys: [customer]", "keys: [customer, channel]"),
    "no keys": ("keys: [customer]", "keys: []"),
    "size": ("size: 1 hour", "size: 2 hours"),
    "every": ("every: 15 minutes", "every: 30 minutes"),
    "publish": ("publish: updates", "publish: final"),
    "aggregate": ("sum(total)", "max(total)"),
    "field": ("sum(total)", "sum(count)"),
    "sessions": ("  size: 1 hour\n  every: 15 minutes\n", "  gap: 15 minutes\n"),
    "order of a value": ("sum(total)", "min_by(total, ordered_at)"),
    "literal": ("total > 1.50", "total > 1.51"),
    "operator": ("total > 1.50", "total >= 1.50"),
    "name of a measure": ("spent:", "sum:"),
    "fewer measures": ("  orders: count(*)\n", ""),
    "order of measures": ("  orders: count(*)\n  spent: sum(total)\n", "  spent: sum(total)\n  orders: count(*)\n"),
}
SAME = {
    "description": ("description: Who", "description: What"),
    "spelling": ("sum(total)", "SUM( (total) )"),
    "notation of a number": ("total > 1.50", "1.5 < total"),
    "notation of a duration": ("size: 1 hour", "size: 60 minutes"),
    "a default left out": ("publish: updates\n", ""),
    "a comment": ("name: spending", "# Ours.\nname: spending"),
}


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER)
def test_what_changes_rows_changes_the_digest(change):
    assert change[0] in PRODUCT
    assert product(*change).digest != product().digest


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_what_changes_no_row_does_not(change):
    assert change[0] in PRODUCT
    assert product(*change).digest == product().digest


def test_a_wider_type_is_no_other_meaning():
    wider = CONTRACT.replace("decimal(10,2)", "decimal(12,2)").replace("physicalType: int", "physicalType: long")
    made = product(contract=wider)
    assert made.measures != product().measures
    assert made.digest == product().digest


def test_the_digest_stays_what_it_is():
    """Tables record the digest: if it changed, every existing product would be rejected."""
    assert product().digest == "25fa73b33bc53bc05f5e4b1b02728edba5bc26e603cad397ac90a53ca74bc2e2"


def test_products_can_be_sent_to_workers():
    assert pickle.loads(pickle.dumps(product())) == product()


def test_the_meaning_of_an_expression_is_json_that_tells_values_apart():
    values = [None, True, False, 0, 1, 1.0, "1", "0x1.0000000000000p+0", Decimal("1.5"), Decimal("-1.5"), "3/2"]
    found = [json.dumps(meaning(Literal(value, PrimitiveType.STRING))) for value in values]
    assert len(set(found)) == len(values)
    column = Column(("a", "b"), PrimitiveType.INT)
    widened = Call(Operator.CONVERT, (column,), PrimitiveType.LONG)
    assert meaning(widened) == meaning(column) == ["field", "a", "b"]
    assert meaning(Call(Operator.NEGATE, (widened,), PrimitiveType.LONG)) == ["negate", ["field", "a", "b"]]
