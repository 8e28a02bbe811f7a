"""Verify's splitter and the consumer's agree on any bytes."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.judging import units_of
from tests.lakeproof.judge.test_batch import BAD_INPUT
from tests.selection import examples, only_with_all

from lakeproof.contracts import load_contract
from lakeproof.judge.batch import Judge
from lakeproof.judge.split import Refused, split
from lakeproof.judge.split import complete_units as complete_units_of_replay
from lakeproof.judge.split import salvage as salvage_of_replay
from reader.verify.landed import units as units_module
from reader.verify.landed.parsed import as_units, cut_array
from reader.verify.landed.units import Units, complete_units, find_units, salvage

JUDGE = Judge(load_contract(Path(__file__).parents[4] / "contracts", "events"))
ALL = frozenset(range(1000))
GOOD = b'{"user_id": "u", "event_id": "e", "event_timestamp": "2026-11-21T12:30:00Z", "event_type": "purchase"}'
ARRAY = b"[" + b", ".join([GOOD] * 3) + b"]"

json_values = st.recursive(
    st.one_of(
        st.none(),
        st.integers(),
        st.floats(),  # including those that JSON does not have
        st.text(max_size=5),
        st.sampled_from(['"', "\\", "},{", '\\"},{\\"', "}, {", "]", "[", "[{", "{}"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=12,
)
records = st.lists(st.dictionaries(st.text(max_size=3), json_values, max_size=3), max_size=6)
SPECIAL = [b" ", b"\n", b"\r\n", b"\r", b"\xff", b"\x00", b"\x0c", b"\xef\xbb\xbf", b"\xc3\xa9", b"\xc2\xa0"]
pieces = st.lists(
    st.sampled_from([*rb"""[ ] { } , " \ \\ \" : 1 x NaN {"a":1} }, },{ [[ "a" \u0041 [] {} '""".split(), *SPECIAL]),
    max_size=25,
).map(b"".join)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Generate arrays, objects and lines of objects, valid or with a few bytes replaced; or any bytes."""
    values = draw(st.one_of(records, st.lists(json_values, max_size=6)))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", ":")]))
    as_text = [json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators) for value in values]
    text = draw(st.sampled_from(["lines", "array", "array", "array"]))
    content = ("\n".join(as_text) if text == "lines" else f"[{separators[0].join(as_text)}]").encode(
        "utf-8", "surrogatepass"
    )
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(pieces) + content[at + draw(st.integers(0, 3)) :]
    return content


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as opened:
        yield opened


def expected(content: bytes) -> Units:
    """Return the result of the consumer's splitter."""
    found = split(content)
    if isinstance(found, Refused):
        return Units(1, whole=True, picked={0: content})
    listed = list(found)
    return Units(len(listed), picked=dict(enumerate(listed)))


@settings(max_examples=examples(800), deadline=None)
@given(st.one_of(batches(), pieces, st.binary(max_size=30)))
@example(b"[1,]")
@example(b"[ ,]")
@example(b'[{"a":1},]')
@example(b'[{"a":"},{"},{"b":1}]')
@example(b'[1,{"a":"},{"}]')
@example(b'[[{"a":1},{"b":2}],3]')
@example(b'[{"a":"\\\\"},{"b":"\\""}]')
@example(b'[{"a":"\\"},{\\""},2]')
@example(b'[{},{"a":[{},{}]} , {}]')
@example(b'{"a":1\r\n{"b":2}\r\n\r\n {"c":3} \n')
@example(b"\xef\xbb\xbf[{}]")
@example(b" \xef\xbb\xbf[{}]")
def test_any_bytes_have_the_same_units(connection: duckdb.DuckDBPyConnection, content: bytes) -> None:
    due = expected(content)
    assert find_units(content, ALL) == due
    assert find_units(content).count == due.count
    parsed = as_units(connection, {"": content}, {"": ALL})
    counted = as_units(connection, {"": content}, {"": frozenset()})
    if parsed:
        assert parsed[""] == due
    if counted:
        assert (counted[""].count, counted[""].whole) == (due.count, due.whole)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(1, 40), batches())
def test_windows_do_not_matter(window: int, content: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units_module, "_WINDOW", window)
        assert find_units(content, ALL) == expected(content)


@settings(max_examples=examples(200), deadline=None)
@given(batches())
def test_any_dead_letter_has_the_landed_bytes(content: bytes) -> None:
    found = find_units(content, ALL)
    rows = units_of(JUDGE.judge(content))
    assert [row["_position"] for row in rows] == list(range(found.count))
    for row in rows:
        if row["raw"] is not None:
            assert row["raw"] == found.picked[row["_position"]]


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_has_the_same_units(name: str) -> None:
    content = BAD_INPUT[name][0]
    assert find_units(content, ALL) == expected(content)


@pytest.mark.parametrize("between", [",", ", ", " ,\r\n  "])
def test_clean_arrays_need_no_second_look(between: str, connection: duckdb.DuckDBPyConnection) -> None:
    records = [json.dumps({"a": text}) for text in ("", "\\", '"', '\\"', "[", "[[{", "é")] + ['{"a": [[{}], "]"]}']
    content = f" [{between.join(records)}]\n".encode()
    found = as_units(connection, {"a": content, "b": ARRAY[:-1], "c": b"[1,2]", "d": b"{}"}, dict.fromkeys("abcd", ALL))
    assert found == {"a": Units(8, picked=dict(enumerate(record.encode() for record in records)))}


def test_positions_that_are_not_there_are_not_picked() -> None:
    wanted = frozenset({-1, 1, 3})
    assert find_units(ARRAY, wanted) == Units(3, picked={1: GOOD}) == cut_array(ARRAY, 3, wanted)


@pytest.mark.parametrize(
    ("content", "units"),
    [
        only_with_all(b"[" + b"{'a':1}," * 150_000 + b"1]", 150_001),
        only_with_all(b"[" + b'{"a":1,},' * 150_000 + b"1]", 150_001),
        (b"[" + b'"' + b"\\\\" * 2_000_000 + b'"]', 1),
        only_with_all(b'["' + b'\\"' * 1_000_000 + b'",NaN]', 2),
        (b"[" * 1_000_000, 1),
        (b"[" + b"[" * 500_000 + b"]" * 500_000 + b"]", 1),
        (b'{"a":1\n' * 150_000, 1),
        (b'{"a":1}\n' * 300_000, 300_000),
        (b"[" + b"1," * 1_000_000 + b"1]", 1_000_001),
        (b"[" + b" " * 3_000_000 + b"1" + b" " * 3_000_000 + b"]", 1),
    ],
    ids=range(10),
)
@pytest.mark.timeout(120)  # anything quadratic takes hours
def test_time_grows_with_the_input_only(content: bytes, units: int) -> None:
    assert find_units(content).count == units


@settings(max_examples=examples(300), deadline=None)
@given(st.one_of(batches(), pieces), st.integers(0, 30))
def test_bytes_of_units_over_the_limit_are_left_out(content, most):
    whole, limited = find_units(content, ALL), find_units(content, ALL, most)
    assert (limited.count, limited.whole) == (whole.count, whole.whole)
    assert limited.picked == {position: unit for position, unit in whole.picked.items() if len(unit) <= most}


@pytest.mark.parametrize(
    ("content", "units", "rest"),
    [
        (b'[{"a":1}, {"b":2}, {"c"', [b'{"a":1}', b'{"b":2}'], b', {"c"'),
        (b'[{"a":1}, {"b":2}', [b'{"a":1}', b'{"b":2}'], b""),
        (b'[{"a":1}, {"b":2},', [b'{"a":1}', b'{"b":2}'], b","),
        (b'[{"a":1}] junk', [b'{"a":1}'], b" junk"),
        (b'[{"a":1}, {"b":2} junk', [b'{"a":1}'], b', {"b":2} junk'),
        (b"[1, 2, 3", [b"1", b"2"], b", 3"),
        (b'["a", "b"', [b'"a"', b'"b"'], b""),
        (b'["a", "b', [b'"a"'], b', "b'),
        (b'\xef\xbb\xbf [{"a":"\xff"}, [1], {"a\xff', [b'{"a":"\xff"}', b"[1]"], b', {"a\xff'),
        (b'[{"a":1}, {"b":2]}, {"c":3}]', [b'{"a":1}'], b', {"b":2]}, {"c":3}]'),
        (b'[{"a": "}, {"}, {"b": "\\"', [b'{"a": "}, {"}'], b', {"b": "\\"'),
        (b'{"a":1}{"b":2}', [], b'{"a":1}{"b":2}'),
        (b"[", [], b""),
        (b"", [], b""),
    ],
)
def test_the_complete_units_of_a_batch_that_breaks_off(content: bytes, units: list[bytes], rest: bytes) -> None:
    assert salvage(content) == (units, rest)


PIECES = [*(bytes([each]) for each in b'[]{},:"\\ \n1'), b"-2.5e3", b"null", b'"a"', b'{"a":1}', b'{"b":[{}]}']


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join), st.booleans())
@settings(max_examples=examples(1_000))
@example(b'{"a":1}, {"b":2', True)
@example(b'{"a":1}] {"b":2}', True)
@example(b"1, 23", True)
@example(b'"a", "b"', True)
def test_a_replay_salvages_the_same_units(content: bytes, is_array: bool) -> None:
    batch = b"[" * is_array + content
    if isinstance(split(batch), Refused):
        theirs = salvage_of_replay(batch)
        units, rest = salvage(batch)
        assert (units, rest if units else b"") == (theirs or ([], b""))


@pytest.mark.parametrize(
    ("content", "units"),
    [
        (b"", []),
        (b" [", []),
        (b"[1, {}]", [b"1", b"{}"]),
        (b"[1, {}, 2", [b"1", b"{}"]),
        (b'{"a": 1', []),
        (b'{"a": 1}', [b'{"a": 1}']),
        (b'{"a": 1}\n{"b": 2', [b'{"a": 1}']),
        (b'{"a": 1}\n{"b": 2}', [b'{"a": 1}', b'{"b": 2}']),
        (b'{"a": 1}\nnull', [b'{"a": 1}']),
        (b'\xef\xbb\xbf {"a": 1}\r\nnull\r\n{"', [b'{"a": 1}', b"null"]),
        (b'{"a": 1}\n{"b": 2\n', [b'{"a": 1}', b'{"b": 2']),
        (b'{\n  "a": {\n', []),
        (b"12", []),
        (b"null\n{}", []),
    ],
)
def test_the_complete_units_of_what_a_batch_begins_with(content: bytes, units: list[bytes]) -> None:
    assert complete_units(content) == complete_units_of_replay(content) == units


@settings(max_examples=examples(1_000), deadline=None)
@given(batches(), st.integers(0, 200))
def test_a_replay_finds_the_same_complete_units(content: bytes, end: int) -> None:
    for batch in (content, content[:end]):
        assert complete_units(batch) == complete_units_of_replay(batch)
