"""Contracts: one Open Data Contract Standard file per stream, the only place where a stream's schema is written."""

from lakeproof.contracts.contract import Contract
from lakeproof.contracts.model import (
    Bound,
    Constraints,
    DecimalType,
    Derived,
    DerivedFrom,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    Silver,
    SilverStrategy,
    Type,
)
from lakeproof.contracts.read.odcs import contract_text, load_contract, parse_contract
from lakeproof.contracts.rules.expression import Rule

__all__ = [
    "Bound",
    "Constraints",
    "Contract",
    "DecimalType",
    "Derived",
    "DerivedFrom",
    "DriftPolicy",
    "Field",
    "ListType",
    "MapType",
    "ObjectType",
    "PrimitiveType",
    "Rule",
    "Silver",
    "SilverStrategy",
    "Type",
    "contract_text",
    "load_contract",
    "parse_contract",
]
