"""The native judge gives the same verdicts, values, reasons and drift as the exact one."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.selection import examples, only_with_all

from lakeproof.contracts import (
    ISO_8601,
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
from lakeproof.install.judges import judge_choice
from lakeproof.judge.batch import Judge
from lakeproof.judge.judged import value_schema
from lakeproof.judge.native import NativeJudge
from lakeproof.settings import Limits

pytestmark = pytest.mark.usefixtures("native")
LIMITS = Limits()
EVENTS = load_contract(Path(__file__).parents[3] / "contracts", "events")

STRINGS = [
    *rb"""
    "a" "1" "" "true" "\u0061" "\ud83d\ude00" "\ud83d" "\udc00" "\udc00\ud83d" "\q" "\u0000" "a\":b" "\\" ":" "{" "a,b"
    """.split(),
    *(b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', '"ä😀"'.encode(), b'"\x00"', b'"\n"', b'"\x7f"', b'"a :b"'),
]
TIMES = [
    f'"{text}"'.encode()
    for text in """
    2026-11-21T12:30:00Z|2026-11-21T12:30:00.5Z|2026-11-21T12:30:00.123456+05:30|2026-11-21T12:30Z|2024|12:30|
    2026-11-21T12:30:00.1234567Z|2026-11-21T12:30:00.1234560Z|2026-11-21T12:30:00-0130|2026-11-21T12:30:00-14|
    2026-11-21T12:30:00+23:59|2026-11-21T12:30:00+24:00|2026-11-21T12:30:00+00:60|2026-02-29T00:00:00Z|
    2024-02-29T00:00:00Z|2026-11-31T00:00:00Z|2026-13-01T00:00:00Z|2026-00-10T00:00:00Z|2026-11-00T00:00:00Z|
    2026-11-21T24:00:00Z|2026-11-21T23:60:00Z|2026-11-21T23:59:60Z|2026-11-21T12:30:00|2026-11-21 12:30:00Z|
    2026-11-21T12:30:00z|2026-11-21T12:30:00Z |2026-11-21T12:30:00Z\\n|2026-11-21T12:30:00.Z|2026-11-21T12:30:00,5Z|
    0001-01-01T00:00:00Z|0001-01-01T00:00:00+01:00|0000-12-31T23:00:00-01:00|0000-02-29T00:00:00Z|
    9999-12-31T23:59:59.999999Z|9999-12-31T23:59:59-01:00|1000-01-01T00:00:00Z|1582-10-10T00:00:00Z|
    8999-12-31T23:59:59-23:59|1969-12-31T23:59:59.999999Z|\uff12026-11-21T12:30:00Z|1677-01-01T00:00:00Z|
    2026-11-21|2024-02-29|2026-02-29|0001-01-01|0000-01-01|9999-12-31|2026-1-1|20261121|2026-11-21\\n|1000-01-01|
    2026-11-21 12:30:00+01:00|2026-11-21 12:30:00.5Z|2026-11-21 12:30|2026-11-21 12:30:00.123456|2026-03-29T02:30:00|
    2026-03-29 02:30:00|2026-10-25T02:30:00|2026-10-25 02:30:00.1|0001-01-01 00:00:00|9999-12-31 23:59:59|2026-04-24|
    1890-01-01 00:00:00|1900-02-29T00:00:00Z|2000-02-29T00:00:00Z|1900-02-29|2000-02-29|1900-02-29 12:00:00|
    2026-11-21 12:30:00-0130|2026-11-21  12:30:00Z|2026-11-21 24:00:00|2026-11-21 12:30:00Z |
    """.replace("|\n    ", "|")
    .strip("\n |")
    .split("|")
]
NUMBERS = [
    *b"""
    0 -0 0.0 -0.0 -0e5 1 -1 1.0 1e2 1E+2 1e-2 0.1 12.34 12.345 12.3400 123456789.12 -99999999.99 99999999.995 8.5e1
    2147483647 2147483648 -2147483648 -2147483649 9007199254740993 9223372036854775807 9223372036854775808
    -9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616 1e39 3.4028235e38 1.17e-38
    3.4028235677973366e38 1e-46 5e-324 1e-400 1e308 1.7976931348623159e308 1e400 -1e400 1e99999999999999999999
    1e-99999999999999999999 0e99999999999999999999 0.30000000000000004 123456789012345678901234567890 0.1e1
    01 -01 1. .5 + - 1e 1e+ 0x1
    """.split(),
    *(b"9" * 1100, b"0." + b"1" * 1100, b"-" + b"9" * 19),
]
EPOCHS = b"""
    0 -0 -0.0 -1 -1.5 1795264200 1795264200.5 1795264200.123456 1795264200.1234567 1.7952642e9 1795264200123
    1795264200123.0 1795264200123456 -62135596800 -62135596801 -62135596800000 -62135596800001
    -62135596800000000 -62135596800000001 253402300799 253402300799.999999 253402300800 253402300799999
    253402300800000 253402300799999999 253402300800000000
""".split()
OTHERS = b"""
    true false null tru nulls NaN Infinity -Infinity {} [] [1] [[1]] [null] {1:2} {"a":1,"a":1} {"a":{}} 'a'
""".split()
TOKENS = STRINGS + TIMES + NUMBERS + EPOCHS + OTHERS
FITTING: dict[PrimitiveType, list[bytes]] = {
    PrimitiveType.STRING: STRINGS,
    PrimitiveType.BOOLEAN: [b"true", b"false"],
    PrimitiveType.INT: NUMBERS,
    PrimitiveType.LONG: NUMBERS,
    PrimitiveType.FLOAT: NUMBERS,
    PrimitiveType.DOUBLE: NUMBERS,
    PrimitiveType.TIMESTAMP: TIMES + EPOCHS,
    PrimitiveType.DATE: TIMES,
    PrimitiveType.SCALAR: STRINGS + NUMBERS + [b"true"],
}
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Africa/Cairo", "Pacific/Apia"]
FORMS = [TimeForm(form, zone) for form in TimeFormat for zone in (ZONES if form.may_lack_offset else ("UTC",))]
FIELD_NAMES = ["a", "b", "A", "from", "f0", "__init__", "ä", "odd key", "a:"]
NAMES = [*FIELD_NAMES, 'quo"te', "back\\slash", "\n", "\x00", "😀", ""]

scalars = st.one_of(
    st.sampled_from(PrimitiveType), st.builds(DecimalType, st.sampled_from([10, 38]), st.sampled_from([0, 2, 10]))
)


def objects(types: st.SearchStrategy[Type]) -> st.SearchStrategy[ObjectType]:
    return st.builds(ObjectType, fields(types))


BOUNDS: dict[Type, list[int | float | date]] = {
    PrimitiveType.INT: [-1, 0, 1, 1 << 30, -(1 << 31), (1 << 31) - 1],
    PrimitiveType.LONG: [-1, 0, 1, (1 << 53) + 1, -(1 << 63), (1 << 63) - 1],
    PrimitiveType.FLOAT: [0.1, -0.0, 1.0, 12.34, 3.4028235e38, -1.5, 5e-324],
    PrimitiveType.DOUBLE: [0.1, -0.0, 1.0, 12.34, 1e308, -1.5, 5e-324],
    PrimitiveType.DATE: [date(1, 1, 1), date(2026, 11, 21), date(2024, 2, 29), date(9999, 12, 31)],
    PrimitiveType.TIMESTAMP: [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2026, 11, 21, 12, 30, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    ],
}
DECIMAL_BOUNDS = [Decimal(text) for text in ("0", "0.1", "12.34", "12.345", "-1e2", "123456789012345678901234567890")]
PATTERNS = ["^[a-z]+$", "a", "", "^.$", r"^\d", "1|true", r"^[^\w]*$", "[äα]", "😀", r"\n$", "^-?0", "(?:a,|:){1,3}b?"]


@st.composite
def constraints_of(draw: st.DrawFn, kind: Type) -> Constraints:
    """Generate constraints that a contract may have for a type: mostly none."""
    if draw(st.integers(0, 2)):
        return Constraints()
    if kind in (PrimitiveType.STRING, PrimitiveType.SCALAR):
        least, most = draw(st.none() | st.integers(0, 3)), draw(st.none() | st.integers(3, 40))
        return Constraints(min_length=least, max_length=most, pattern=draw(st.none() | st.sampled_from(PATTERNS)))
    values = DECIMAL_BOUNDS if isinstance(kind, DecimalType) else BOUNDS.get(kind)
    if not values:
        return Constraints()
    may_exclude = kind not in (PrimitiveType.INT, PrimitiveType.LONG)
    ends = st.none() | st.builds(Bound, st.sampled_from(values), st.booleans() if may_exclude else st.just(False))
    return Constraints(draw(ends), draw(ends))


@st.composite
def fields(draw: st.DrawFn, types: st.SearchStrategy[Type]) -> tuple[Field, ...]:
    names = draw(st.lists(st.sampled_from(FIELD_NAMES), unique=True, min_size=1, max_size=4))
    found = []
    for name in names:
        kind = draw(types)
        may_list = isinstance(kind, PrimitiveType | DecimalType) and draw(st.integers(0, 4)) == 0
        allowed = (
            draw(st.lists(st.sampled_from(["a", "1", "1.0", "-0", "true", "", "ä😀", "\x00"]))) if may_list else []
        )
        required = draw(st.booleans())
        time = draw(st.sampled_from(FORMS)) if kind is PrimitiveType.TIMESTAMP and not allowed else ISO_8601
        found.append(Field(name, kind, required, tuple(allowed), constraints=draw(constraints_of(kind)), time=time))
    return tuple(found)


types: st.SearchStrategy[Type] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.builds(MapType, inner), st.builds(ListType, inner), objects(inner)),
    max_leaves=4,
)
contracts = fields(types).map(lambda found: Contract("s", "1", "", found, (), ""))
spaces = st.sampled_from([b"", b"", b"", b"", b" ", b"\n\t", b"\r"])


@st.composite
def key_texts(draw: st.DrawFn, name: str) -> bytes:
    form = draw(st.integers(0, 9))
    if form == 0:
        return b'"' + b"".join(b"\\u%04x" % ord(letter) for letter in name) + b'"'
    return json.dumps(name, ensure_ascii=form < 5).encode()


@st.composite
def value_texts(draw: st.DrawFn, kind: Type) -> bytes:
    """Generate JSON text for a field of type `kind`: mostly a fitting one, sometimes any."""
    form = draw(st.integers(0, 19))
    if form == 0:
        return draw(st.sampled_from(TOKENS))
    if form == 1:
        return b"null"
    before, after = draw(spaces), draw(spaces)
    match kind:
        case ObjectType():
            text = draw(object_texts(kind.fields))
        case MapType():
            names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=draw(st.integers(0, 5)) > 0))
            text = draw(members([(name, kind.value) for name in names]))
        case ListType():
            text = b"[" + b",".join([draw(value_texts(kind.item)) for _ in range(draw(st.integers(0, 3)))]) + b"]"
        case DecimalType():
            text = draw(st.sampled_from(NUMBERS))
        case PrimitiveType():
            text = draw(st.sampled_from(FITTING[kind]))
    return before + text + after


@st.composite
def members(draw: st.DrawFn, pairs: list[tuple[str, Type]]) -> bytes:
    texts = [
        draw(spaces) + draw(key_texts(name)) + draw(spaces) + b":" + draw(value_texts(kind)) for name, kind in pairs
    ]
    return b"{" + b",".join(texts) + b"}"


@st.composite
def object_texts(draw: st.DrawFn, found: tuple[Field, ...]) -> bytes:
    pairs = [(field.name, field.type) for field in found if field.required or draw(st.booleans())]
    change = draw(st.integers(0, 9))
    if change == 0 and pairs:
        pairs.append(draw(st.sampled_from(pairs)))
    elif change == 1:
        pairs.append((draw(st.sampled_from(NAMES)), PrimitiveType.SCALAR))
    elif change == 2:
        pairs = pairs[1:]
    return draw(members(draw(st.permutations(pairs))))


@st.composite
def record_texts(draw: st.DrawFn, contract: Contract) -> bytes:
    text = draw(object_texts(contract.fields))
    for _ in range(max(0, draw(st.integers(-8, 2)))):
        at = draw(st.integers(0, len(text)))
        inserted = draw(
            st.sampled_from([b"", b'"', b"\\", b":", b",", b"{", b"}", b"[", b"]", b"0", b"-", b" ", b"\xff", b"\x00"])
        )
        text = text[:at] + inserted + text[at + draw(st.integers(0, 1)) :]
    return text


def judged(judge: Judge, batches: list[bytes]) -> dict[tuple[int, int], Any]:
    """Return all landed data of each unit, by batch and position."""
    units: dict[tuple[int, int], Any] = {}
    for together in judge.judge_together(batches):
        good, bad = together.judged.good, together.judged.bad
        assert good.values.schema == value_schema(judge.contract)
        for column in [*good.values.columns, good.drift, good.rescued, bad.reasons, bad.raw]:
            if column is not None:
                column.validate(full=True)
        more = [[None] * len(good) if each is None else each.to_pylist() for each in (good.drift, good.rescued)]
        rows = zip(map(repr, good.values.to_pylist()), *more, strict=True)  # repr distinguishes -0.0 from 0.0
        dead = zip(bad.reasons.to_pylist(), bad.raw.to_pylist(), strict=True)
        for part, of, found in ((good, together.good_of, rows), (bad, together.bad_of, dead)):
            for number, position, unit in zip(of.tolist(), part.positions.to_pylist(), found, strict=True):
                assert (number, position) not in units
                units[number, position] = unit
    return units


def agrees(contract: Contract, batches: list[bytes], limits: Limits = LIMITS) -> int:
    """Check the judges against each other; return the number of units that the native one leaves to the exact one."""
    expected = judged(Judge(contract, limits, "python"), batches)
    assert judged(Judge(contract, limits), batches) == expected
    if judge_choice().name == "python":  # the tests of the native judge are skipped, but other tests call this
        return 0
    chunks = list(NativeJudge(contract).judge(batches, limits.record_bytes, 100, 1 << 20))
    assert len(expected) == sum(
        len(chunk.good) + len(chunk.bad) + len(chunk.undecided) + len(chunk.too_large) + len(chunk.refused)
        for chunk in chunks
    )
    return sum(len(chunk.undecided) for chunk in chunks)


def of_units(contract: Contract, units: list[bytes]) -> int:
    """Check the judges against each other on units, in each wrapping."""
    agrees(contract, [b"[" + b" ,".join(units) + b"]\n"])
    agrees(contract, [b"\r\n".join(units)])
    return agrees(contract, units)


POLICIES = st.sampled_from(DriftPolicy)


@settings(max_examples=examples(250), deadline=None)
@given(st.data())
def test_agrees_with_the_exact_judge(data: st.DataObject) -> None:
    contract = replace(data.draw(contracts), drift=data.draw(POLICIES))
    of_units(contract, data.draw(st.lists(record_texts(contract), min_size=1, max_size=12)))


@pytest.mark.all
@pytest.mark.parametrize("policy", DriftPolicy)
def test_agrees_on_every_token_in_every_type(policy: DriftPolicy) -> None:
    left = count = 0
    for kind in [*PrimitiveType, DecimalType(10, 2), DecimalType(38, 38), DecimalType(5, 0)]:
        for wrapped in (kind, MapType(kind), ListType(kind), ObjectType((Field("a", kind, required=True),))):
            for required, allowed in ((True, ()), (False, ()), (False, ("a", "1", "1.0", "true"))):
                if allowed and wrapped is not kind:
                    continue
                contract = Contract("s", "1", "", (Field("a", wrapped, required, allowed),), (), "", drift=policy)
                wrap = {MapType: b'{"a":%b}', ListType: b"[%b]", ObjectType: b'{"a":%b}'}.get(type(wrapped), b"%b")
                units = [b'{"a":' + wrap.replace(b"%b", token) + b"}" for token in TOKENS]
                left += of_units(contract, units)
                count += len(units)
    assert left < count / 4  # units that are not JSON or not valid text


def marked(form: TimeForm) -> Any:
    """Run a form by default, a form of each format and of each time zone with ``ALL=1``, and the others on demand."""
    if form in (TimeForm(TimeFormat.T_OFFSET), TimeForm(TimeFormat.T_LOCAL, "Europe/Berlin"), FORMS[-1]):
        return form
    every_format = form.zone == ("Europe/Berlin" if form.format.may_lack_offset else "UTC")
    if every_format or form.format is TimeFormat.T_LOCAL:
        return only_with_all(form)
    return pytest.param(form, marks=pytest.mark.long)


@pytest.mark.parametrize("form", [marked(form) for form in FORMS], ids=str)
def test_agrees_on_every_token_in_every_form_of_a_timestamp(form: TimeForm) -> None:
    units = [b'{"a":' + token + b"}" for token in TOKENS]
    for constraints in (Constraints(), Constraints(Bound(datetime(2000, 1, 1, tzinfo=UTC)))):
        for policy in DriftPolicy:
            field = Field("a", PrimitiveType.TIMESTAMP, constraints=constraints, time=form)
            of_units(Contract("s", "1", "", (field,), (), "a", drift=policy), units)


CONSTRAINED = [*BOUNDS, DecimalType(10, 2), PrimitiveType.STRING, PrimitiveType.SCALAR]
BY_DEFAULT, ON_DEMAND = (PrimitiveType.INT, PrimitiveType.STRING), (PrimitiveType.LONG, PrimitiveType.SCALAR)


def constraints_on(kind: Type) -> list[Constraints]:
    """Return constraints of one kind each: each end and each pattern."""
    if kind in (PrimitiveType.STRING, PrimitiveType.SCALAR):
        lengths = [Constraints(min_length=2), Constraints(max_length=1), Constraints(min_length=1, max_length=1)]
        return [Constraints(pattern=pattern) for pattern in PATTERNS] + lengths
    exclusive = (False,) if kind in (PrimitiveType.INT, PrimitiveType.LONG) else (False, True)
    bounds = [Bound(value, each) for value in BOUNDS.get(kind, DECIMAL_BOUNDS) for each in exclusive]
    return [Constraints(minimum=bound) for bound in bounds] + [Constraints(maximum=bound) for bound in bounds]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind, marks=[pytest.mark.long if kind in ON_DEMAND else pytest.mark.all] * (kind not in BY_DEFAULT)
        )
        for kind in CONSTRAINED
    ],
    ids=str,
)
def test_agrees_on_every_token_under_constraints(kind: PrimitiveType | DecimalType) -> None:
    units = [b'{"a":' + token + b"}" for token in TOKENS]
    for each in constraints_on(kind):
        for allowed in ((), ("a", "1", "0", "0.1", "2026-11-21")):
            field = Field("a", kind, allowed=allowed, constraints=each)
            agrees(Contract("s", "1", "", (field,), (), ""), units)
            agrees(Contract("s", "1", "", (field,), (), "", drift=DriftPolicy.RESCUE), units)


def test_usual_records_are_not_left_to_the_exact_judge() -> None:
    usual = {
        "user_id": "user-1",
        "event_id": "e",
        "event_timestamp": "2026-11-21T12:30:00.123456Z",
        "event_type": "purchase",
        "product_id": "p: 1",
        "properties": {"amount": 12.5, "currency": "EUR", "note": "ä 😀 \n", "none": None, "ok": True},
    }
    faulty = [{**usual, "more": [1, {}]}, {**usual, "event_id": None}, {**usual, "properties": 1}, {"user_id": 1.5}]
    units = [
        json.dumps(record, ensure_ascii=ascii_only, separators=separators, indent=indent).encode()
        for record in (usual, {**usual, "product_id": None}, *faulty)
        for ascii_only in (True, False)
        for separators in ((",", ":"), (", ", ": "), (" , ", " : "))
        for indent in (None, 2)
    ]
    for policy in DriftPolicy:
        assert agrees(replace(EVENTS, drift=policy), units) == 0


def test_strings_that_look_like_keys_are_read() -> None:
    record = {
        "user_id": '{"a":1}',
        "event_id": '":',
        "event_timestamp": "2026-11-21T12:30:00Z",
        "event_type": "page_view",
    }
    assert of_units(EVENTS, [json.dumps(record).encode()]) == 0


def test_repeated_keys_are_left_to_the_exact_judge() -> None:
    whole = b'{"user_id":"u","event_id":"e","event_timestamp":"2026-11-21T12:30:00Z","event_type":"page_view"%b}'
    repeated = [b',"user_id":"u"', b',"user_id" :"v"', rb',"\u0075ser_id":"u"', b',"properties":{"a":1,"a":1}']
    repeated += [b',"product_id":null,"product_id":null', b',"properties":{},"properties":{"a":":"}']
    repeated += [b',"x":{"a":1,"a":1}', b',"product_id":[{"a":1,"a":1}]', b',"x":1,"x":1', b',"x":{%b,"k1":1}' % KEYS]
    units = [whole.replace(b"%b", more) for more in repeated]
    assert of_units(EVENTS, units) == len(units)
    assert of_units(EVENTS, [whole.replace(b"%b", b""), whole.replace(b"%b", b',"x":{%b}' % KEYS)]) == 0
    wrong = [b'[{"a":1,"a":2}]', b'"a"', b"[[1]]"]
    assert agrees(EVENTS, [b"[" + b",".join(wrong) + b"]"]) == 1


def one(kind: Type, token: bytes, policy: DriftPolicy = DriftPolicy.FREEZE, **more: Any) -> int:
    contract = Contract("s", "1", "", (Field("a", kind, **more),), (), "", drift=policy)
    return agrees(contract, [b'{"a":' + token + b"}"])


@pytest.mark.parametrize("kind", [PrimitiveType.DOUBLE, PrimitiveType.FLOAT, PrimitiveType.SCALAR])
def test_agrees_on_numbers_of_any_length(kind: PrimitiveType) -> None:
    for token in (b"1" + b"0" * 700_000 + b"e-700000", b"0." + b"0" * 700_000 + b"1e700001", b"0." + b"1" * 9_990):
        one(kind, token)


@pytest.mark.parametrize("text", ["1e-99999999", "-1e-99999999", "0.001", "0.0099", "-0.01"])
def test_agrees_on_bounds_below_the_last_decimal_place(text: str) -> None:
    for exclusive in (False, True):
        bound = Bound(Decimal(text), exclusive)
        for token in (b"0", b"0.01", b"-0.01"):
            one(DecimalType(10, 2), token, constraints=Constraints(minimum=bound))
            one(DecimalType(10, 2), token, constraints=Constraints(maximum=bound))


@pytest.mark.parametrize("policy", DriftPolicy)
def test_agrees_on_reasons_without_number_and_paths_without_end(policy: DriftPolicy) -> None:
    kind = MapType(ListType(PrimitiveType.INT))
    for length, items in ((10, 101), (81, 40), (1_000, 90), (2_000, 99), (5_000, 150)):
        one(kind, b'{"' + b"k" * length + b'":[' + b",".join([b'""'] * items) + b"]}", policy)


KEYS = b",".join(b'"k%d":%d' % (number, number) for number in range(40))
