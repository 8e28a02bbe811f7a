"""Contracts: one Open Data Contract Standard file per stream, which defines its schema."""

from lakeproof.contracts.contract import Contract
from lakeproof.contracts.maintenance import Maintenance
from lakeproof.contracts.model import (
    ISO_8601,
    Bound,
    Breaker,
    BreakerAction,
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
    TimeForm,
    TimeFormat,
    Type,
)
from lakeproof.contracts.read.odcs import contract_text, load_contract, parse_contract
from lakeproof.contracts.rules.expression import Rule

__all__ = [
    "ISO_8601",
    "Bound",
    "Breaker",
    "BreakerAction",
    "Constraints",
    "Contract",
    "DecimalType",
    "Derived",
    "DerivedFrom",
    "DriftPolicy",
    "Field",
    "ListType",
    "Maintenance",
    "MapType",
    "ObjectType",
    "PrimitiveType",
    "Rule",
    "Silver",
    "SilverStrategy",
    "TimeForm",
    "TimeFormat",
    "Type",
    "contract_text",
    "load_contract",
    "parse_contract",
]
