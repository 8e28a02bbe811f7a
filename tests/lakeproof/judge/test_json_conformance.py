"""JSON by RFC 8259: accepted, rejected and undefined texts, alone and among good neighbors."""

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from tests.judging import units_of
from tests.lakeproof.judge.json_cases import CASES, Case, Verdict

from lakeproof.contracts import Contract, Field, PrimitiveType
from lakeproof.judge.batch import Judge
from reader.verify.landed.parsed import as_units
from reader.verify.landed.units import find_units

ID, VALUE = Field("id", PrimitiveType.STRING, required=True), Field("value", PrimitiveType.SCALAR)
JUDGE = Judge(Contract("s", "1", "", (ID, VALUE), ("id",), "at"))
SPACE = b" \t\r\n"
FIRST, LAST = b'{"id":"first"}', b'{"id": "last", "value": "],[{\\"}"}'
WHOLE = {"corrupt_batch", "empty_batch", "not_a_batch"}
NOT_JSON = {"corrupt_batch", "empty_batch", "malformed_record", "invalid_utf8", "too_deep"}
WRAPPINGS = ("as is", "in an object", "in an array", "as lines")
ALL = frozenset(range(10_000))

Row = dict[str, Any]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as opened:
        yield opened


def wrapped(text: bytes, wrapping: str) -> bytes:
    match wrapping:
        case "in an object":
            return b'{"id":"x","value":' + text + b"}"
        case "in an array":
            return b"[" + FIRST + b"," + text + b"," + LAST + b"]"
        case "as lines":
            return FIRST + b"\n" + text + b"\n" + LAST
    return text


def judged(batch: bytes) -> list[Row]:
    """Return a row for each unit. Check that positions are unique and dead letters have their landed bytes in order."""
    rows = units_of(JUDGE.judge(batch))
    assert [row["_position"] for row in rows] == list(range(len(rows)))
    begin = 0
    for row in rows:
        if row["reasons"] is None:
            assert row["raw"] is None
            assert row["id"] is not None
        elif codes(row) & WHOLE:
            assert len(rows) == 1
            assert row["raw"] == batch
        else:
            begin = batch.index(row["raw"], begin) + len(row["raw"])
    return rows


def codes(row: Row) -> set[str]:
    return {reason["code"] for reason in row["reasons"] or ()}


def parts(text: bytes) -> list[bytes] | None:
    """Return the parts between commas outside brackets; None unless strings and brackets close and no part is blank."""
    found, closers, in_string, escaped = [b""], [], False, False
    for byte in (text[index : index + 1] for index in range(len(text))):
        if in_string:
            in_string, escaped = byte != b'"' or escaped, byte == b"\\" and not escaped
        elif byte == b'"':
            in_string = True
        elif byte in (b"[", b"{"):
            closers.append({b"[": b"]", b"{": b"}"}[byte])
        elif byte in (b"]", b"}"):
            if not closers or closers.pop() != byte:
                return None
        elif byte == b"," and not closers:
            found.append(b"")
            continue
        found[-1] += byte
    return None if in_string or closers or not all(part.strip(SPACE) for part in found) else found


def is_json(text: bytes) -> bool:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(text.decode(), parse_constant=refuse, parse_int=str)
    except (ValueError, RecursionError):
        return False
    return True


def check_units(batch: bytes, rows: list[Row], connection: duckdb.DuckDBPyConnection) -> None:
    """Check that verify finds the same units and bytes as the consumer."""
    found = find_units(batch, ALL)
    assert found.count == find_units(batch).count == len(rows)
    assert found.whole == bool(rows and codes(rows[0]) & WHOLE)
    assert {row["_position"]: row["raw"] for row in rows if row["reasons"]}.items() <= found.picked.items()
    for wanted in (frozenset(), ALL):
        parsed = as_units(connection, {"batch": batch}, {"batch": wanted})
        if "batch" in parsed:
            assert parsed["batch"].count == len(rows)
            assert parsed["batch"].picked == (found.picked if wanted else {})


def check_neighbours(rows: list[Row], between: int) -> list[Row]:
    """Check that the good neighbors landed; return the rows between them."""
    assert len(rows) == between + 2
    assert [(row["reasons"], row["id"]) for row in (rows[0], rows[-1])] == [(None, "first"), (None, "last")]
    return rows[1:-1]


def lines(text: bytes) -> list[bytes]:
    return [line.removesuffix(b"\r") for line in text.split(b"\n") if line.strip(SPACE)]


def test_the_cases_are_as_many_as_those_of_the_public_suite_and_each_is_new():
    assert len(CASES) == len({case.text for case in CASES}) >= 318
    for verdict in Verdict:
        assert sum(case.verdict is verdict for case in CASES) > 80


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_is_that_of_another_parser(case: Case):
    if case.verdict is not Verdict.UNDEFINED:
        assert is_json(case.text) is (case.verdict is Verdict.ACCEPTED)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_unit_is_in_one_place_and_verify_counts_the_same(case: Case, connection):
    for wrapping in WRAPPINGS:  # not parameters: 700 texts are tests enough for pytest
        batch = wrapped(case.text, wrapping)
        rows = judged(batch)
        check_units(batch, rows, connection)
        if wrapping == "as lines":
            check_neighbours(rows, len(lines(case.text)))
        if wrapping == "in an array":
            elements = parts(case.text)
            if elements is None:
                assert [codes(row) for row in rows] == [{"corrupt_batch"}]
            else:
                check_neighbours(rows, len(elements))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.verdict is Verdict.ACCEPTED], ids=lambda case: case.name
)
def test_what_is_accepted_is_judged_as_json(case: Case):
    value = json.loads(case.text)
    text = case.text.strip(SPACE)
    alone = judged(case.text)
    assert len(alone) == (len(value) if isinstance(value, list) else 1)
    if not isinstance(value, list | dict):
        assert codes(alone[0]) == {"not_a_batch"}
    [in_object] = judged(wrapped(case.text, "in an object"))
    [in_array] = check_neighbours(judged(wrapped(case.text, "in an array")), 1)
    as_line = check_neighbours(judged(wrapped(case.text, "as lines")), len(lines(case.text)))
    for row in [*alone, in_object, in_array, *(as_line if b"\n" not in text else [])]:
        assert not codes(row) & NOT_JSON
    assert in_array["raw"] == text
    if isinstance(value, dict):
        assert "missing_field" in codes(in_array)
        assert codes(in_object) <= {"wrong_type", "duplicate_key"}
    elif isinstance(value, list):
        assert codes(in_array) == {"not_an_object"}
        assert codes(in_object) == {"wrong_type"}
    else:
        assert codes(in_array) == {"not_an_object"}
        assert in_object["reasons"] is None
        assert in_object["value"] == (value if value is None or isinstance(value, str) else text.decode())


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.verdict is Verdict.REJECTED], ids=lambda case: case.name
)
def test_what_is_rejected_is_a_dead_letter(case: Case):
    for wrapping in ("as is", "in an object"):
        rows = judged(wrapped(case.text, wrapping))
        assert rows
        assert all(row["reasons"] for row in rows)
        assert any(codes(row) & NOT_JSON for row in rows)
    elements = parts(case.text)
    if elements is not None:
        rows = check_neighbours(judged(wrapped(case.text, "in an array")), len(elements))
        assert [row["raw"] for row in rows] == [part.strip(SPACE) for part in elements]
        assert len(elements) > 1 or codes(rows[0]) & NOT_JSON
    rows = check_neighbours(judged(wrapped(case.text, "as lines")), len(lines(case.text)))
    assert [row["raw"] for row in rows] == lines(case.text)
    assert len(rows) != 1 or codes(rows[0]) & NOT_JSON


def test_names_tell_cases_apart():
    names = [re.sub(r":.*", "", case.name) for case in CASES]
    assert len(set(names)) == len(names)
