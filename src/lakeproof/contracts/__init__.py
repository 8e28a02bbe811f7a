"""Contracts: one Open Data Contract Standard file per stream, the only place where a stream's schema is written."""

from lakeproof.contracts.contract import Contract
from lakeproof.contracts.expression import Rule
from lakeproof.contracts.model import (
    Bound,
    Constraints,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    Type,
)
from lakeproof.contracts.odcs import contract_text, load_contract, parse_contract

__all__ = [
    "Bound",
    "Constraints",
    "Contract",
    "DecimalType",
    "DriftPolicy",
    "Field",
    "ListType",
    "MapType",
    "ObjectType",
    "PrimitiveType",
    "Rule",
    "Type",
    "contract_text",
    "load_contract",
    "parse_contract",
]
