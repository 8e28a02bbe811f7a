"""Every cell of the tables in docs/json-types.md is correct."""

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.judging import units_of

from lakeproof.contracts import Contract, DecimalType, Field, ListType, MapType, ObjectType, PrimitiveType, Type
from lakeproof.judge.batch import Judge

PAGE = Path(__file__).parents[3] / "docs" / "json-types.md"
REASONS = {"type": "wrong_type", "format": "wrong_format", "range": "out_of_range"}
COMPOUND: dict[str, Type] = {
    "decimal(10,2)": DecimalType(10, 2),
    "map of scalar": MapType(PrimitiveType.SCALAR),
    "list of int": ListType(PrimitiveType.INT),
    "object of a: int": ObjectType((Field("a", PrimitiveType.INT),)),
}


def cells() -> list[tuple[str, str, str]]:
    found = []
    header: list[str] = []
    for line in PAGE.read_text().splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if row[:1] == ["token"]:
            header = row
        elif not row:
            header = []
        elif header and not row[0].startswith("---"):
            found += [(row[0].strip("`"), column, cell) for column, cell in zip(header[1:], row[1:], strict=True)]
    return found


def shown(value: Any) -> str:
    match value:
        case None | bool() | dict() | list():
            return json.dumps(value)
        case float():
            return repr(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
    return str(value)


def test_the_tables_are_found() -> None:
    columns = {column for _, column, _ in cells()}
    assert columns == {*PrimitiveType, *COMPOUND}
    assert len(cells()) > 200


@pytest.mark.parametrize(("token", "column", "cell"), cells())
def test_cell(token: str, column: str, cell: str) -> None:
    kind = COMPOUND.get(column) or PrimitiveType(column)
    contract = Contract("s", "1", "", (Field("f", kind),), (), "")
    [row] = units_of(Judge(contract).judge(b'{"f": ' + token.encode() + b"}"))
    if match := re.fullmatch(r"(\w+)(?: at `(.*)`)?", cell):
        code, path = match.groups()
        assert [(reason["code"], reason["path"]) for reason in row["reasons"]] == [
            (REASONS.get(code, code), path or "$.f")
        ]
        assert row["f"] is None
    else:
        assert row["reasons"] is None
        assert shown(row["f"]) == ("" if cell == "(empty)" else cell.strip("`"))
