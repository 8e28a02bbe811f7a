"""Judging small batches together gives the same result as judging them separately."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.judging import units_of
from tests.lakeproof.judge.test_batch import ARRAY, BAD_INPUT, GOOD, event

from lakeproof.contracts import Contract, DriftPolicy, load_contract, parse_contract
from lakeproof.judge.batch import Judge
from lakeproof.judge.judged import Judged, Together
from lakeproof.settings import Limits

CONTRACTS = Path(__file__).parents[3] / "contracts"
EVENTS = load_contract(CONTRACTS, "events")
RULE = """
    quality:
      - type: sql
        name: not_page_views
        query: event_type <> 'page_view'
"""
JUDGES = {
    "freeze": Judge(EVENTS),
    "rescue": Judge(replace(EVENTS, drift=DriftPolicy.RESCUE)),
    "discard": Judge(replace(EVENTS, drift=DriftPolicy.DISCARD)),
    "limits": Judge(EVENTS, Limits(record_bytes=len(GOOD) - 1)),
}
SMALL = [value for value, _ in BAD_INPUT.values() if len(value) < 10_000]
BATCHES = st.sampled_from(
    [
        *SMALL,
        GOOD,
        b" \n" + GOOD + b" ",
        event(user_id=b"12"),
        GOOD[:-1] + b', "more": 1}',
        GOOD + GOOD,
        GOOD + b"," + GOOD,
        GOOD[:40],
        GOOD[40:],
        b"{",
        b"}",
        b"\n",
    ]
)

Units = list[list[dict[str, Any]]]


def by_batch(found: Sequence[Together], batches: int) -> Units:
    """Return the units of each batch, by position."""
    units: Units = [[] for _ in range(batches)]
    for together in found:
        good, bad = together.judged.good, together.judged.bad
        of = [*together.good_of, *together.bad_of]
        positions = [*good.positions.to_pylist(), *bad.positions.to_pylist()]
        numbered = Judged(
            replace(good, positions=pa.array(range(len(good)), pa.int64())),
            replace(bad, positions=pa.array(range(len(good), len(of)), pa.int64())),
        )
        for unit in units_of([numbered]):
            number = unit["_position"]
            units[of[number]].append(unit | {"_position": positions[number]})
    return [sorted(each, key=lambda unit: int(unit["_position"])) for each in units]


@pytest.mark.parametrize("name", JUDGES)
@given(batches=st.lists(BATCHES, max_size=12))
@example([*SMALL, ARRAY, GOOD])
@example([GOOD + b",{", GOOD[1:]])
def test_together_is_as_one_by_one(name: str, batches: list[bytes]) -> None:
    judge = JUDGES[name]
    found = list(judge.judge_together(batches))
    assert by_batch(found, len(batches)) == [units_of(judge.judge(batch)) for batch in batches]


def test_rules_are_held_to_records_that_are_judged_together() -> None:
    judge = Judge(_with_rule(EVENTS))
    batches = [GOOD, event(event_type=b'"page_view"'), b"[" + GOOD + b"," + event(event_type=b'"page_view"') + b"]"]
    units = by_batch(list(judge.judge_together(batches)), 3)
    codes = [[reason["code"] for reason in unit["reasons"] or ()] for each in units for unit in each]
    assert codes == [[], ["rule_violated"], [], ["rule_violated"]]
    assert units == [units_of(judge.judge(batch)) for batch in batches]


def _with_rule(contract: Contract) -> Contract:
    text = (CONTRACTS / f"{contract.stream}.yaml").read_text()
    head, name, rest = text.partition("    properties:\n")
    assert name
    return parse_contract((head + RULE.lstrip("\n") + name + rest).encode(), "with-rule", contract.stream)
