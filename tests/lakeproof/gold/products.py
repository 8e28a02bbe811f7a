"""A product and its contract, for tests that change either."""

from typing import Any

from lakeproof.contracts import Contract, parse_contract
from lakeproof.errors import UsageError
from lakeproof.gold.model import Product
from lakeproof.gold.product_file import parse_product

CONTRACT = """\
apiVersion: v3.2.0
kind: DataContract
id: orders
version: 1.0.0
status: active
customProperties:
  - {property: eventTime, value: ordered_at}
schema:
  - name: orders
    properties:
      - {name: order_id, logicalType: string, required: true, primaryKey: true}
      - {name: ordered_at, logicalType: timestamp, required: true}
      - {name: customer, logicalType: string}
      - {name: channel, logicalType: string, enum: [{value: web}, {value: shop}]}
      - {name: count, logicalType: integer, physicalType: int}
      - {name: total, logicalType: number, physicalType: 'decimal(10,2)'}
      - {name: ratio, logicalType: number}
      - {name: part, logicalType: number, physicalType: float}
      - {name: place, logicalType: object, properties: [{name: city, logicalType: string}]}
      - {name: tags, logicalType: array, items: {logicalType: string}}
      - {name: window_start, logicalType: timestamp}
"""
PRODUCT = """\
name: spending
silver: orders
description: Who spends how much.
keys: [customer]
window:
  size: 1 hour
  every: 15 minutes
measures:
  orders: count(*)
  spent: sum(total)
  large: count(CASE WHEN total > 1.50 AND channel IN ('web', 'shop') THEN 1 END)
publish: updates
sinks: [table]
"""


def contract_of(text: str = CONTRACT) -> Any:
    """Return a function that finds the contract of the streams orders and returns."""

    def found(stream: str) -> Contract:
        if stream not in ("orders", "returns"):
            raise UsageError(f"No contract found for the stream {stream!r}.", "Correct it.")
        return parse_contract(text.replace("name: orders", f"name: {stream}").encode(), f"{stream}.yaml", stream)

    return found


def product(old: str = "", new: str = "", contract: str = CONTRACT) -> Product:
    """Return the product with a change, based on a contract."""
    text = PRODUCT.replace(old, new, 1)
    name = text.partition("name: ")[2].splitlines()[0]
    return parse_product(text.encode(), "gold/spending.yaml", name, contract_of(contract))
