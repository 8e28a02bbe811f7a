"""Drift: depending on the policy, it makes a dead letter, is kept as landed, or is dropped and counted."""

import copy
import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.judging import units_of
from tests.lakeproof.judge.test_native import contracts, record_texts
from tests.selection import examples

from lakeproof.contracts import (
    Constraints,
    Contract,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
)
from lakeproof.contracts.rules.expression import Call, Column, Literal, Operator, Rule
from lakeproof.contracts.tokens import FloatToken, IntToken
from lakeproof.judge.batch import Judge
from lakeproof.judge.exact import Drifted, ExactJudge
from lakeproof.judge.judged import value_schema
from lakeproof.tables.names import POSITION, RAW, REASONS, RESCUED

DRIFT = "_drift"
FREEZE, RESCUE, DISCARD = DriftPolicy
INT, STRING = PrimitiveType.INT, PrimitiveType.STRING
BUYER = ObjectType((Field("name", STRING, required=True), Field("age", INT)))
FIELDS = (
    Field("id", STRING, required=True),
    Field("code", STRING, allowed=("AB", "b"), constraints=Constraints(min_length=2, pattern="^[A-Z]")),
    Field("items", ListType(INT), required=True),
    Field("tags", MapType(INT)),
    Field("buyer", BUYER),
    Field("seller", BUYER, required=True),
)
WHOLE = b'{"id":"a","items":[1],"seller":{"name":"s"}'


def contract(policy: DriftPolicy, fields: tuple[Field, ...] = FIELDS) -> Contract:
    return Contract("s", "1", "", fields, (), "", drift=policy)


def rows(judge: Judge, unit: bytes) -> list[dict[str, Any]]:
    return units_of(judge.judge(unit))


@pytest.mark.parametrize(
    ("more", "rescued", "codes"),
    [
        (b"", None, None),
        (b',"x":{ "a" : [1, 2.50] } ', {"$.x": '{ "a" : [1, 2.50] }'}, ["unknown_field"]),
        (b',"x":null', {"$.x": "null"}, ["unknown_field"]),
        (rb',"\u0078": "\u00e4\n"', {"$.x": r'"\u00e4\n"'}, ["unknown_field"]),
        (',"ä b":"ä😀"'.encode(), {"$['ä b']": '"ä😀"'}, ["unknown_field"]),
        (b',"ID":1', {"$.ID": "1"}, ["unknown_field"]),
        (b',"code":7', {"$.code": "7"}, ["wrong_type"]),
        (b',"code":"b"', {"$.code": '"b"'}, ["pattern_mismatch+wrong_length"]),
        (b',"code":"ABC"', {"$.code": '"ABC"'}, ["not_allowed"]),
        (b',"tags":[]', {"$.tags": "[]"}, ["wrong_type"]),
        (b',"tags":{"a":1,"b":2147483648,"c d":1.0}', {"$.tags.b": "2147483648", "$.tags['c d']": "1.0"},
            ["out_of_range", "wrong_type"]),
        (b',"buyer":"me"', {"$.buyer": '"me"'}, ["wrong_type"]),
        (b',"buyer":{"name":"n","age":"1","since":2020}', {"$.buyer.age": '"1"', "$.buyer.since": "2020"},
            ["wrong_type", "unknown_field"]),
    ],
)  # fmt: skip
def test_what_may_drift(more: bytes, rescued: dict[str, str] | None, codes: list[str] | None) -> None:
    [frozen] = rows(Judge(contract(FREEZE)), WHOLE + more + b"}")
    assert (frozen[REASONS] is None) == (rescued is None)
    [kept] = rows(Judge(contract(RESCUE)), WHOLE + more + b"}")
    assert (kept[REASONS], kept[RAW], kept[RESCUED], kept[DRIFT]) == (None, None, rescued, codes)
    assert (kept["id"], kept["code"]) == ("a", None)
    [let_go] = rows(Judge(contract(DISCARD)), WHOLE + more + b"}")
    assert let_go == {name: value for name, value in kept.items() if name != RESCUED}


def test_an_item_that_does_not_fit_leaves_the_others_in_their_places() -> None:
    [row] = rows(Judge(contract(RESCUE)), WHOLE.replace(b"[1]", b'[1, "2" , null,[ ] ,5]') + b"}")
    assert row["items"] == [1, None, None, None, 5]
    assert row[RESCUED] == {"$.items[1]": '"2"', "$.items[3]": "[ ]"}


@pytest.mark.parametrize("policy", [RESCUE, DISCARD])
@pytest.mark.parametrize(
    ("unit", "reasons"),
    [
        (b'{"id":1,"items":[1],"seller":{"name":"s"},"x":1}', ["wrong_type $.id", "unknown_field $.x"]),
        (b'{"id":null,"items":["1"],"seller":{"name":"s"}}', ["null_field $.id", "wrong_type $.items[0]"]),
        (b'{"id":"a","items":{},"seller":{"name":"s"}}', ["wrong_type $.items"]),
        (b'{"id":"a","items":[],"seller":[]}', ["wrong_type $.seller"]),
        (b'{"id":"a","items":[],"seller":{}}', ["missing_field $.seller.name"]),
        (WHOLE + b',"buyer":{"name":1}}', ["wrong_type $.buyer.name"]),
        (WHOLE + b',"x":1,"x":1}', ["duplicate_key $.x", "unknown_field $.x"]),
        (WHOLE + b',"x":{"y":1,"y":1}}', ["duplicate_key $.x.y", "unknown_field $.x"]),
        (WHOLE + b',"x":"\xff"}', ["invalid_utf8 $.x", "unknown_field $.x"]),
        (WHOLE + rb',"x":"\ud800"}', ["invalid_utf8 $.x", "unknown_field $.x"]),
        (WHOLE + b',"x":NaN}', ["malformed_record $"]),
        (WHOLE + b',"x":' + b"[" * 600 + b"]" * 600 + b"}", ["too_deep $"]),
        (b"[" + b"[]]", ["not_an_object $"]),
    ],
)
def test_what_is_a_dead_letter_under_each_policy(policy: DriftPolicy, unit: bytes, reasons: list[str]) -> None:
    [row] = rows(Judge(contract(policy)), unit if unit.startswith(b"[") else b"[" + unit + b"]")
    assert [f"{reason['code']} {reason['path']}" for reason in row[REASONS]] == reasons
    assert (row[DRIFT], row.get(RESCUED)) == (None, None)


def test_a_broken_rule_is_asked_of_the_row_and_tells_all_reasons() -> None:
    is_null = Call(Operator.IS_NULL, (Column(("code",), STRING),), PrimitiveType.BOOLEAN)
    known = Rule("code_known", "$.code", "code", Call(Operator.NOT, (is_null,), PrimitiveType.BOOLEAN))
    is_a = Call(Operator.EQUAL, (Column(("id",), STRING), Literal("a", STRING)), PrimitiveType.BOOLEAN)
    judge = Judge(replace(contract(RESCUE), rules=(known, Rule("is_a", "$", "id", is_a))))
    units = [WHOLE + more + b"}" for more in (b',"code":7,"y":1', b',"code":"AB","z":1', b',"code":"AB"', b"")]
    [dead, kept, plain, fast_dead] = rows(judge, b"[" + b",".join(units) + b"]")
    assert (kept[POSITION], kept[RESCUED], plain[POSITION], plain[RESCUED]) == (1, {"$.z": "1"}, 2, None)
    assert [f"{reason['code']} {reason['path']}" for reason in dead[REASONS]] == [
        "wrong_type $.code",
        "unknown_field $.y",
        "rule_violated $.code",
    ]
    assert (dead[RESCUED], dead[DRIFT], dead[RAW]) == (None, None, units[0])
    assert [reason["code"] for reason in fast_dead[REASONS]] == ["rule_violated"]


def test_all_of_many_values_are_kept_each_under_its_own_path() -> None:
    names = (
        [f"u{index}" for index in range(1_000)] + ["x" * 100 + end for end in "ab"] + ["\n" * 100 + end for end in "ab"]
    )
    unit = WHOLE + b"," + json.dumps({name: [index] for index, name in enumerate(names)}).encode()[1:]
    [row] = rows(Judge(contract(RESCUE)), unit)
    assert sorted(row[RESCUED].values()) == sorted(f"[{index}]" for index in range(len(names)))
    assert row[DRIFT] == ["unknown_field"] * len(names)


@pytest.mark.parametrize("policy", DriftPolicy)
def test_a_frozen_stream_has_no_columns_of_drift(policy: DriftPolicy) -> None:
    expected = {FREEZE: [], RESCUE: [RESCUED, DRIFT], DISCARD: [DRIFT]}[policy]
    for value in (WHOLE + b"}", b"", b"[{}]"):
        [judged] = Judge(contract(policy)).judge(value)
        good = judged.good
        assert good.values.schema == value_schema(contract(policy))
        columns = {RESCUED: good.rescued, DRIFT: good.drift}
        assert [name for name, column in columns.items() if column is not None] == expected
        assert {len(column) for column in columns.values() if column is not None} <= {len(good)}


def steps(path: str) -> list[str | int]:
    """Return keys and indexes of a JSONPath."""
    found: list[str | int] = []
    for name, index, quoted in re.findall(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]", path):
        unquoted = re.sub(r"\\(?:u([0-9a-f]{4})|(.))", lambda one: one[2] or chr(int(one[1], 16)), quoted)
        found.append(int(index) if index else name or unquoted)
    return found


def loads(text: str | bytes) -> Any:
    return json.loads(text, parse_int=IntToken, parse_float=FloatToken)


def dumps(value: Any) -> str:
    """Return JSON text with each number in its original form."""
    match value:
        case IntToken() | FloatToken():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json.dumps(key)}:{dumps(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(dumps, value)) + "]"
    return json.dumps(value)


@settings(max_examples=examples(500), deadline=None)
@given(st.data())
def test_nothing_of_any_record_is_lost(data: st.DataObject) -> None:
    frozen = data.draw(contracts)
    units = data.draw(st.lists(record_texts(frozen), min_size=1, max_size=8))
    freeze, rescue, discard = (ExactJudge(replace(frozen, drift=policy)) for policy in DriftPolicy)
    for unit in units:
        strict, kept, counted = freeze.judge(unit), rescue.judge(unit), discard.judge(unit)
        assert not isinstance(strict, Drifted)
        assert repr(kept) == repr(counted)
        if not isinstance(kept, Drifted):
            assert repr(kept) == repr(strict)
            continue
        assert kept.faults == strict
        landed = loads(unit)
        rest = copy.deepcopy(landed)
        put_back: list[tuple[Any, Any, Any]] = []
        for path, _, text in kept.drift:
            assert text.encode() in unit
            *holders, last = steps(path)
            holder = rest
            for step in holders:
                holder = holder[step]
            assert loads(text) == holder[last]
            put_back.append((holder, last, loads(text)))
            holder[last] = None
        without_unknown = copy.deepcopy(rest)
        for path, codes, _ in kept.drift:
            if codes == "unknown_field":
                *holders, last = steps(path)
                holder = without_unknown
                for step in holders:
                    holder = holder[step]
                del holder[last]
        # The columns have the values that the record without the drift would have, ...
        assert repr(freeze.judge(dumps(without_unknown).encode())) == repr(kept.values)
        # ... and with the drift, they make up the landed record.
        for holder, last, value in put_back:
            holder[last] = value
        assert dumps(rest) == dumps(landed)


@pytest.mark.all
@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_policies_differ_in_what_they_keep_only(data: st.DataObject) -> None:
    frozen = data.draw(contracts)
    units = data.draw(st.lists(record_texts(frozen), min_size=1, max_size=8))
    batch = b"[" + b",".join(units) + b"]"
    strict, kept, counted = (
        units_of(Judge(under).judge(batch)) for under in (replace(frozen, drift=policy) for policy in DriftPolicy)
    )
    assert [row[RESCUED] and len(row[RESCUED]) for row in kept] == [row[DRIFT] and len(row[DRIFT]) for row in kept]
    assert repr([without(row, RESCUED) for row in kept]) == repr(counted)
    # Apart from drift, the same rows are good, and dead letters have the same reasons.
    passed = {row[POSITION] for row in kept if row[DRIFT]}
    plain = [without(row, RESCUED, DRIFT) for row in kept if row[POSITION] not in passed]
    assert repr(plain) == repr([row for row in strict if row[POSITION] not in passed])
    assert all(row[REASONS] for row in strict if row[POSITION] in passed)


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}
