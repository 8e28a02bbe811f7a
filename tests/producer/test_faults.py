"""A fault has exactly the declared effect."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeproof.contracts import Contract, DecimalType, Field, ListType, ObjectType, PrimitiveType
from lakeproof.reasons import Reason
from producer import faults
from producer.encoding import JsonStyle, encode_record, join_records
from producer.events import make_event, make_pools

POOLS = make_pools(1, 10)
NOW = datetime(2026, 1, 31, tzinfo=UTC)


def sound(rng: Random) -> dict[str, Any]:
    return make_event(rng, POOLS, NOW, with_product=True)


def parsed(record: dict[str, Any]) -> Any:
    return json.loads(msgspec.json.encode(record))


@given(rng=st.randoms(use_true_random=False))
def test_breaking_breaks_one_field_in_the_way_it_says(contract: Contract, reasons: Any, rng: Random) -> None:
    record = sound(rng)
    before = parsed(record)
    broken, reason = faults.break_schema(record, contract, rng)
    assert parsed(record) == before
    assert reasons(parsed(broken)) == [reason]
    after = parsed(broken)
    assert sum(before.get(name, "absent") != after.get(name, "absent") for name in before) == 1


@given(rng=st.randoms(use_true_random=False))
def test_an_extra_field_adds_only_its_reason(contract: Contract, reasons: Any, rng: Random) -> None:
    record = sound(rng)
    broken, first = faults.break_schema(record, contract, rng)
    both, second = faults.add_unknown_field(broken, contract, rng)
    assert second is Reason.UNKNOWN_FIELD
    assert len(both) == len(broken) + 1
    assert reasons(parsed(both)) == sorted([first, second])


def test_a_contract_that_requires_nothing(contract: Contract) -> None:
    lenient = replace(contract, fields=tuple(replace(field, required=False) for field in contract), primary_key=())
    rng = Random(1)
    seen = {faults.break_schema(sound(rng), lenient, rng)[1] for _ in range(50)}
    assert seen == {Reason.WRONG_TYPE, Reason.WRONG_FORMAT}


def test_every_way_to_break_a_record_is_used(contract: Contract) -> None:
    rng = Random(1)
    seen: set[tuple[Reason, str]] = set()
    for _ in range(3000):
        record = sound(rng)
        broken, reason = faults.break_schema(record, contract, rng)
        before, after = parsed(record), parsed(broken)
        seen |= {(reason, name) for name in before if before[name] != after.get(name, "absent")}
    required = [field.name for field in contract if field.required]
    assert seen == (
        {(reason, name) for reason in (Reason.MISSING_FIELD, Reason.NULL_FIELD) for name in required}
        | {(Reason.WRONG_TYPE, field.name) for field in contract}
        | {(Reason.WRONG_FORMAT, "event_timestamp")}
    )


@pytest.mark.parametrize(
    ("kind", "fitting"),
    [
        (PrimitiveType.LONG, (int, float)),
        (PrimitiveType.BOOLEAN, bool),
        (DecimalType(10, 2), (int, float)),
        (ListType(PrimitiveType.STRING), list),
        (ObjectType((Field("a", PrimitiveType.STRING),)), dict),
        (PrimitiveType.DATE, str),
    ],
)
def test_a_wrong_type_is_wrong_for_types_that_events_lack(kind: Any, fitting: Any, contract: Contract) -> None:
    other = Contract("x", "1", "", (Field("value", kind, required=True),), ("value",), "value")
    rng = Random(1)
    for _ in range(100):
        broken, reason = faults.break_schema({"value": None}, other, rng)
        if reason is Reason.WRONG_TYPE:
            value = broken["value"]
            assert value is not None
            if fitting is not bool and isinstance(value, bool):
                continue  # in Python, a boolean is an integer; in JSON, it is not
            assert not isinstance(value, fitting)


@given(rng=st.randoms(use_true_random=False), style=st.sampled_from(JsonStyle), size=st.integers(1, 4))
def test_what_is_cut_short_is_no_batch(rng: Random, style: JsonStyle, size: int) -> None:
    batch = join_records([encode_record(sound(rng), style) for _ in range(size)], style)
    cut, reason = faults.cut_short(batch, rng)
    assert reason is Reason.CORRUPT_BATCH
    assert batch.startswith(cut)
    assert 0 < len(cut) < len(batch)
    assert b"\n" not in cut  # otherwise, it could be a valid batch with fewer records
    with pytest.raises(ValueError, match=r"\w"):
        json.loads(cut)


def test_every_length_of_a_cut_happens() -> None:
    rng = Random(1)
    lengths = {len(faults.cut_short(b'[{"a":1}]', rng)[0]) for _ in range(500)}
    assert lengths == set(range(1, 9))
    lengths = {len(faults.cut_short(b'{"a":1}\n{"b":2}\n', rng)[0]) for _ in range(500)}
    assert lengths == set(range(1, 7))
