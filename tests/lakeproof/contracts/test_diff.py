"""The meaning of a change: described for each kind of change, and checked against the judge as its reader."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lakeproof.judge.test_native import (
    CONSTRAINED,
    TOKENS,
    constraints_of,
    constraints_on,
    contracts,
    fields,
    record_texts,
    scalars,
    types,
)
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
    Silver,
    SilverStrategy,
    Type,
)
from lakeproof.contracts.diff import Change, Compatibility, changes, compatibility
from lakeproof.judge.exact import ExactJudge

INT, LONG, FLOAT, DOUBLE = PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.FLOAT, PrimitiveType.DOUBLE
STRING, SCALAR = PrimitiveType.STRING, PrimitiveType.SCALAR


def contract(*found: Field) -> Contract:
    return Contract("s", "1", "", found, ("id",), "at")


def a(kind: Type = STRING, **more: object) -> Field:
    return Field("a", kind, **more)


def within(**asked: object) -> Field:
    return a(INT, constraints=Constraints(**asked))


OTHER = Field("z", STRING)
CASES: dict[str, tuple[Field | None, Field | None, str]] = {
    "optional field added": (None, a(), "backward"),
    "required field added": (None, a(required=True), "breaking"),
    "optional field removed": (a(), None, "forward"),
    "required field removed": (a(required=True), None, "breaking"),
    "required → optional": (a(required=True), a(), "backward"),
    "optional → required": (a(), a(required=True), "forward"),
    "type widened: int → long": (a(INT), a(LONG), "backward"),
    "type widened: float → double": (a(FLOAT), a(DOUBLE), "backward"),
    "type widened: decimal(10,2) → decimal(12,2)": (a(DecimalType(10, 2)), a(DecimalType(12, 2)), "backward"),
    "type widened: string → scalar": (a(STRING), a(SCALAR), "backward"),
    "type narrowed: scalar → string": (a(SCALAR), a(STRING), "forward"),
    "type changed: long → scalar": (a(LONG), a(SCALAR), "breaking"),
    "type narrowed: long → int": (a(LONG), a(INT), "forward"),
    "type narrowed: decimal(12,2) → decimal(10,2)": (a(DecimalType(12, 2)), a(DecimalType(10, 2)), "forward"),
    "type changed: decimal(10,2) → decimal(12,3)": (a(DecimalType(10, 2)), a(DecimalType(12, 3)), "breaking"),
    "type changed: int → double": (a(INT), a(DOUBLE), "breaking"),
    "type changed: string → object": (a(), a(ObjectType((OTHER,))), "breaking"),
    "type changed: array → map": (a(ListType(INT)), a(MapType(INT)), "breaking"),
    "only x, y allowed": (a(), a(allowed=("y", "x")), "forward"),
    "any value allowed": (a(allowed=("x",)), a(), "backward"),
    "allowed values added: y": (a(allowed=("x",)), a(allowed=("x", "y")), "backward"),
    "allowed values removed: y": (a(allowed=("x", "y")), a(allowed=("x",)), "forward"),
    "minimum tightened": (within(minimum=Bound(1)), within(minimum=Bound(2)), "forward"),
    "minimum loosened": (within(minimum=Bound(1)), within(), "backward"),
    "maximum tightened": (within(), within(maximum=Bound(2)), "forward"),
    "maximum loosened": (within(maximum=Bound(1)), within(maximum=Bound(2)), "backward"),
    "minLength tightened": (within(min_length=1), within(min_length=2), "forward"),
    "minLength loosened": (within(min_length=1), within(), "backward"),
    "maxLength tightened": (within(), within(max_length=2), "forward"),
    "maxLength loosened": (within(max_length=1), within(max_length=2), "backward"),
    "pattern added": (a(), a(constraints=Constraints(pattern="a")), "forward"),
    "pattern removed": (a(constraints=Constraints(pattern="a")), a(), "backward"),
    "pattern changed": (
        a(constraints=Constraints(pattern="a")), a(constraints=Constraints(pattern="b")), "breaking"),
    "deprecated": (a(), a(deprecated=True), "full"),
    "no longer deprecated": (a(deprecated=True), a(), "full"),
    "optional field dropped": (a(deprecated=True), a(dropped=True), "forward"),
    "required field dropped": (a(required=True), a(dropped=True), "breaking"),
    "optional field restored": (a(dropped=True), a(), "backward"),
    "required field restored": (a(dropped=True), a(required=True), "breaking"),
    "dropped field added": (None, a(dropped=True), "full"),
    "dropped field removed": (a(dropped=True), None, "full"),
    "renamed from b": (Field("b", STRING), a(former_names=("b",)), "breaking"),
    "description changed": (a(description="x"), a(description="y"), "full"),
}  # fmt: skip


@pytest.mark.parametrize(("what", "case"), CASES.items(), ids=CASES.keys())
@pytest.mark.parametrize("path", ["a", "o.a", "o[].a", "o.*.a"])
def test_each_change(what: str, case: tuple[Field | None, Field | None, str], path: str) -> None:
    def around(field: Field | None) -> Contract:
        inner = (OTHER, field) if field else (OTHER,)
        kinds = {"o.a": ObjectType(inner), "o[].a": ListType(ObjectType(inner)), "o.*.a": MapType(ObjectType(inner))}
        return contract(Field("o", kinds[path])) if path in kinds else contract(*inner)

    old, new, expected = case
    found = changes(around(old), around(new))
    assert [(change.field, change.what) for change in found] == [(path, what)]
    assert compatibility(found) == expected


def test_an_exclusive_end_is_tighter() -> None:
    inclusive, exclusive = (a(DOUBLE, constraints=Constraints(Bound(1.0, each), Bound(2.0, each))) for each in (0, 1))
    assert compatibility(changes(contract(inclusive), contract(exclusive))) is Compatibility.FORWARD
    assert compatibility(changes(contract(exclusive), contract(inclusive))) is Compatibility.BACKWARD


def test_what_is_not_of_a_field() -> None:
    old = contract(a())
    for new in (replace(old, stream="t"), replace(old, primary_key=("a",)), replace(old, event_time="a")):
        assert compatibility(changes(old, new)) is Compatibility.BREAKING
    assert changes(old, replace(old, version="2", digest="other")) == ()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (DriftPolicy.FREEZE, DriftPolicy.RESCUE, "backward"),
        (DriftPolicy.FREEZE, DriftPolicy.DISCARD, "backward"),
        (DriftPolicy.RESCUE, DriftPolicy.FREEZE, "forward"),
        (DriftPolicy.DISCARD, DriftPolicy.FREEZE, "forward"),
        (DriftPolicy.RESCUE, DriftPolicy.DISCARD, "full"),
        (DriftPolicy.DISCARD, DriftPolicy.RESCUE, "full"),
    ],
)
def test_a_change_of_the_policy(old: DriftPolicy, new: DriftPolicy, expected: str) -> None:
    before, after = (replace(contract(a()), drift=policy) for policy in (old, new))
    [change] = changes(before, after)
    assert change.what.startswith(f"drift policy {old} → {new}: ")
    assert compatibility((change,)) == expected


WEEK = Silver(timedelta(days=7), SilverStrategy.MERGE)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (WEEK, Silver(timedelta(hours=36), SilverStrategy.MERGE),
         ["silver horizon 7 days → 36 hours: other late records"]),
        (WEEK, Silver(None, SilverStrategy.STATE),
         ["silver horizon 7 days → unbounded: other late records",
          "silver strategy merge → state: same records, found in another way"]),
        (WEEK, WEEK, []),
        (None, WEEK, ["silver added"]),
        (WEEK, None, ["silver removed: optional fields in its primary key: id"]),
        (None, None, []),
    ],
)  # fmt: skip
def test_a_change_of_silver_is_told_and_judges_no_record_otherwise(
    old: Silver | None, new: Silver | None, expected: list[str]
) -> None:
    before, after = (replace(contract(Field("id", STRING)), silver=silver) for silver in (old, new))
    found = changes(before, after)
    assert [change.what for change in found] == expected
    assert compatibility(found) is Compatibility.FULL
    assert not any(change.obstacle for change in found)


def test_a_key_can_be_added_where_there_was_none() -> None:
    keyed = contract(a())
    keyless = replace(keyed, primary_key=())
    [added], [removed] = changes(keyless, keyed), changes(keyed, keyless)
    assert (added.what, added.obstacle) == ("primary key none → id: other identities", "")
    assert removed.what == "primary key id → none: other identities"
    assert removed.obstacle
    assert compatibility((added,)) is compatibility((removed,)) is Compatibility.BREAKING


def test_together_they_are_as_bad_as_each() -> None:
    backward, forward = Change("a", "", backward=True, forward=False), Change("b", "", backward=False, forward=True)
    assert compatibility((backward, forward)) is Compatibility.BREAKING
    assert compatibility(()) is Compatibility.FULL


WIDER: dict[Type, Type] = {
    INT: LONG,
    LONG: INT,
    FLOAT: DOUBLE,
    DOUBLE: FLOAT,
    **{DecimalType(10, scale): DecimalType(38, scale) for scale in (0, 2, 10)},
    **{DecimalType(38, scale): DecimalType(10, scale) for scale in (0, 2, 10)},
}


@st.composite
def changed(draw: st.DrawFn, old: tuple[Field, ...]) -> tuple[Field, ...]:
    """Generate fields with random changes."""
    new = []
    for field in old:
        match draw(st.integers(0, 11)):
            case 0:
                continue
            case 1:
                field = replace(field, required=not field.required)
            case 2:
                field = replace(field, type=WIDER.get(field.type, draw(scalars)), constraints=Constraints(), allowed=())
            case 3:
                field = replace(field, constraints=draw(constraints_of(field.type)))
            case 4 if isinstance(field.type, PrimitiveType | DecimalType):
                field = replace(field, allowed=tuple(draw(st.lists(st.sampled_from(["a", "1", "0"]), max_size=2))))
            case 5:
                field = replace(field, constraints=Constraints(), allowed=())
            case 8:
                field = replace(field, deprecated=not field.deprecated)
            case 9:
                field = replace(field, dropped=not field.dropped)
            case 6 | 7 if isinstance(field.type, ObjectType):
                field = replace(field, type=ObjectType(draw(changed(field.type.fields)) or (OTHER,)))
        new.append(field)
    if not new or draw(st.integers(0, 4)) == 0:
        known = {field.name for field in old}
        new += [field for field in draw(fields(types)) if field.name not in known][:1]
    return tuple(new)


@pytest.mark.all
@settings(max_examples=examples(300))
@given(st.data())
def test_nothing_differs_from_itself_and_back_is_the_other_way_round(data: st.DataObject) -> None:
    old = data.draw(contracts)
    new = replace(old, fields=data.draw(changed(old.fields)))
    assert changes(old, old) == ()
    there = Counter((change.field, change.backward, change.forward) for change in changes(old, new))
    back = Counter((change.field, change.forward, change.backward) for change in changes(new, old))
    assert there == back
    assert bool(there) == (Counter(old.fields) != Counter(new.fields) and _differ(old, new))


def _differ(old: Contract, new: Contract) -> bool:
    return {field.name: _asked(field) for field in old} != {field.name: _asked(field) for field in new}


def _asked(field: Field) -> Field:
    """Return a field without insignificant parts: the form of allowed values, and a minimum length of 0.

    Options of a dropped field are insignificant, too.
    """
    if field.dropped:
        field = replace(field, required=False, allowed=(), constraints=Constraints())
    constraints = replace(field.constraints, min_length=field.constraints.min_length or None)
    kind = field.type
    if isinstance(kind, ObjectType):
        kind = ObjectType(tuple(sorted(map(_asked, kind.fields), key=lambda each: each.name)))
    return replace(field, type=kind, allowed=tuple(sorted(set(field.allowed))), constraints=constraints)


@settings(max_examples=examples(500), deadline=None)
@given(st.data())
def test_a_reader_takes_what_it_is_said_to_take(data: st.DataObject) -> None:
    writer = data.draw(contracts)
    reader = replace(writer, fields=data.draw(changed(writer.fields)))
    is_backward = all(change.backward for change in changes(writer, reader))
    is_forward = all(change.forward for change in changes(reader, writer))
    assert is_backward == is_forward
    if not is_backward:
        return
    write, read = (ExactJudge(replace(each, fields=each.live)) for each in (writer, reader))
    for record in data.draw(st.lists(record_texts(writer), max_size=5)):
        if isinstance(write.judge(record), dict):
            assert isinstance(read.judge(record), dict), record


@pytest.mark.parametrize("kind", CONSTRAINED, ids=str)
def test_a_reader_takes_each_token_that_it_is_said_to_take(kind: Type) -> None:
    kinds = [kind, WIDER[kind]] if kind in WIDER else [kind]
    variants = [a(each, constraints=asked) for each in kinds for asked in (Constraints(), *constraints_on(kind))]
    variants += [a(kind, required=True), a(kind, allowed=("1", "a")), a(kind, allowed=("1",))]
    taken = []
    for variant in variants:
        judge = ExactJudge(contract(variant)).judge
        units = [b"{}", *(b'{"a":' + token + b"}" for token in TOKENS)]
        taken.append({unit for unit in units if isinstance(judge(unit), dict)})
    said = 0
    for old, written in zip(variants, taken, strict=True):
        for new, read in zip(variants, taken, strict=True):
            if all(change.backward for change in changes(contract(old), contract(new))):
                assert written <= read, (old, new)
                said += 1
    assert said > 2 * len(variants)


def test_bounds_of_decimals_are_compared_exactly() -> None:
    old, new = (a(DecimalType(38, 2), constraints=Constraints(Bound(Decimal(text)))) for text in ("0.1", "0.10"))
    assert changes(contract(old), contract(new)) == ()
