"""Records that meet a contract are valid by its JSON Schema, which has all rules that JSON Schema can express."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from tests.lakeproof.judge.test_native import CONSTRAINED, TOKENS, constraints_on, contracts, record_texts
from tests.selection import examples

from lakeproof.contracts import (
    Bound,
    Constraints,
    Contract,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    TimeForm,
    TimeFormat,
    Type,
    load_contract,
)
from lakeproof.contracts.json_schema import json_schema
from lakeproof.judge.exact import ExactJudge

FOLDER = Path(__file__).parents[3] / "contracts"


def validator(contract: Contract) -> Draft7Validator:
    schema = json.loads(json.dumps(json_schema(contract)))
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


@settings(max_examples=examples(500), deadline=None)
@given(st.data())
def test_what_the_judge_takes_is_valid(data: st.DataObject) -> None:
    contract = replace(data.draw(contracts), drift=data.draw(st.sampled_from(DriftPolicy)))
    judge, schema = ExactJudge(contract), validator(contract)
    for record in data.draw(st.lists(record_texts(contract), max_size=6)):
        if not isinstance(judge.judge(record), list):
            schema.validate(json.loads(record))


@pytest.mark.parametrize("kind", CONSTRAINED, ids=str)
def test_each_token_that_the_judge_takes_is_valid(kind: Type) -> None:
    taken = 0
    for constraints in constraints_on(kind):
        for allowed in ((), ("a", "1", "-0", "2026-11-21")):
            contract = Contract("s", "1", "", (Field("a", kind, allowed=allowed, constraints=constraints),), (), "")
            judge, schema = ExactJudge(contract), validator(contract)
            for unit in (b'{"a":' + token + b"}" for token in TOKENS):
                if isinstance(judge.judge(unit), dict):
                    assert schema.is_valid(json.loads(unit)), (unit, constraints)
                    taken += 1
    assert taken > 2 * len(constraints_on(kind))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_schemas_of_our_contracts_are_schemas(path: Path) -> None:
    contract = load_contract(FOLDER, path.stem)
    assert not validator(contract).is_valid({})
    assert json_schema(contract)["title"] == path.stem


@pytest.mark.parametrize(
    ("kind", "more", "good", "bad"),
    [
        (PrimitiveType.STRING, {}, ["", None], [1]),
        (PrimitiveType.STRING, {"required": True}, [""], [None]),
        (PrimitiveType.STRING, {"allowed": ("a", "1")}, ["a", "1", None], ["b", 1]),
        (PrimitiveType.STRING, {"constraints": Constraints(min_length=1, max_length=2, pattern="^a")},
         ["a", "ab"], ["", "abc", "b"]),
        (PrimitiveType.BOOLEAN, {"allowed": ("true",)}, [True], [False, "true", 1]),
        (PrimitiveType.INT, {}, [1, -(2**31)], [1.5, "1", 2**31, True]),
        (PrimitiveType.INT, {"constraints": Constraints(Bound(0), Bound(9))}, [0, 9], [-1, 10]),
        (PrimitiveType.INT, {"allowed": ("1", "2")}, [1, None], ["1", 3]),
        (PrimitiveType.LONG, {}, [2**63 - 1], [2**63]),
        (PrimitiveType.DOUBLE, {"constraints": Constraints(Bound(0.5, True), Bound(1.0, True))}, [0.6], [0.5, 1, 1.0]),
        (DecimalType(4, 2), {}, [99.99, 1], [100.5, -1000, "1"]),
        (PrimitiveType.TIMESTAMP, {}, ["2026-11-21T12:30:00.5+01:00", "2026-11-21T12:30Z"], ["2026-11-21", 1, "12:30"]),
        (PrimitiveType.TIMESTAMP, {"constraints": Constraints(Bound(datetime(2026, 1, 1, tzinfo=UTC)))},
         ["2026-11-21T12:30:00Z"], ["2026"]),
        (PrimitiveType.TIMESTAMP, {"time": TimeForm(TimeFormat.SPACE_ANY, "Europe/Berlin")},
         ["2026-11-21 12:30:00.5+01:00", "2026-11-21 12:30", None], ["2026-11-21", 1, "2026-11-21T12:30Z"]),
        (PrimitiveType.TIMESTAMP, {"time": TimeForm(TimeFormat.T_LOCAL)}, ["2026-11-21T12:30"], ["2026-11-21T12:30Z"]),
        (PrimitiveType.TIMESTAMP, {"time": TimeForm(TimeFormat.DATE)}, ["2026-11-21"], ["2026-11-21T12:30", 1]),
        (PrimitiveType.TIMESTAMP, {"time": TimeForm(TimeFormat.EPOCH_S)}, [1.5, -1, None], [1e12, "1"]),
        (PrimitiveType.TIMESTAMP, {"time": TimeForm(TimeFormat.EPOCH_MS), "required": True,
         "constraints": Constraints(Bound(datetime(2026, 1, 1, tzinfo=UTC)), Bound(datetime(2027, 1, 1, tzinfo=UTC)))},
         [1767225600000, 1798761600000], [1767225599999, 1798761600001, 1767225600000.5, None]),
        (PrimitiveType.DATE, {}, ["2026-11-21"], ["2026-11-21T00:00:00Z"]),
        (PrimitiveType.SCALAR, {"allowed": ("1", "true")}, ["1", 1, True, "true"], [2, "a", False]),
        (MapType(PrimitiveType.INT), {}, [{"a": 1, "b": None}, {}], [[], {"a": "1"}]),
        (ListType(PrimitiveType.INT), {}, [[1, None], []], [{}, ["1"]]),
        (ObjectType((Field("b", PrimitiveType.INT, required=True),)), {}, [{"b": 1}], [{}, {"b": 1, "c": 1}, []]),
    ],
)  # fmt: skip
def test_what_a_schema_says(kind: Type, more: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    schema = validator(Contract("s", "1", "", (Field("a", kind, **more),), (), ""))
    assert [value for value in good if not schema.is_valid({"a": value})] == []
    assert [value for value in bad if schema.is_valid({"a": value})] == []
    assert not schema.is_valid({"other": 1})


@pytest.mark.parametrize("policy", [DriftPolicy.RESCUE, DriftPolicy.DISCARD])
def test_what_a_schema_says_where_values_may_drift(policy: DriftPolicy) -> None:
    inner = ObjectType((Field("need", PrimitiveType.INT, required=True), Field("may", PrimitiveType.INT)))
    fields = (
        Field("need", PrimitiveType.STRING, required=True, description="told", allowed=("x",)),
        Field("may", PrimitiveType.INT, description="told"),
        Field("object", inner),
        Field("list", ListType(inner), required=True),
        Field("map", MapType(inner)),
    )
    contract = Contract("s", "1", "", fields, (), "", drift=policy)
    schema, judge = validator(contract), ExactJudge(contract)
    good: list[dict[str, Any]] = [
        {}, {"more": 1}, {"may": "text"}, {"object": 1}, {"object": {"need": 1, "may": "text", "more": 1}},
        {"list": [1, None, {"need": 1}]}, {"map": 1}, {"map": {"a": 1, "b": {"need": 1, "more": []}}},
    ]  # fmt: skip
    bad: list[dict[str, Any]] = [
        {"need": 1}, {"need": "y"}, {"object": {}}, {"object": {"need": "1"}}, {"list": 1}, {"list": [{}]},
        {"map": {"a": {"may": 1}}},
    ]  # fmt: skip
    for change in good + bad:
        record = {"need": "x", "list": []} | change
        assert schema.is_valid(record) == (change in good), change
        assert isinstance(judge.judge(json.dumps(record).encode()), list) == (change in bad), change
    told = json_schema(contract)["properties"]["may"]
    goes = {DriftPolicy.RESCUE: "rescued", DriftPolicy.DISCARD: "discarded"}[policy]
    assert told == {"$comment": f"expected: int; other values are {goes}", "description": "told"}


@pytest.mark.parametrize("kind", [PrimitiveType.SCALAR, PrimitiveType.DOUBLE])
def test_a_schema_is_valid_json(kind: PrimitiveType) -> None:
    """JSON has no NaN, and validators read 1e400 as infinity."""
    field = Field("a", kind, required=True, allowed=("NaN", "-Infinity", "1"))
    for allowed, expected in (((), ["NaN", "-Infinity", "1", 1]), (("1e400",), None)):
        contract = Contract("s", "1", "", (replace(field, allowed=field.allowed + allowed),), (), "")
        schema = json_schema(contract)
        json.dumps(schema, allow_nan=False)
        if kind is PrimitiveType.SCALAR:
            assert schema["properties"]["a"].get("enum") == expected
            validator(contract).validate({"a": float("1e400")} if allowed else {"a": "NaN"})
