"""Contracts: one Open Data Contract Standard file per stream, the only place where a stream's schema is written."""

from lakeproof.contracts.model import (
    Contract,
    DecimalType,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    Type,
)
from lakeproof.contracts.odcs import load_contract

__all__ = [
    "Contract",
    "DecimalType",
    "Field",
    "ListType",
    "MapType",
    "ObjectType",
    "PrimitiveType",
    "Type",
    "load_contract",
]
