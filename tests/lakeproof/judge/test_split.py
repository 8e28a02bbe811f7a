"""Splitting: every byte of a batch is in one unit, or the batch is rejected as a whole."""

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.selection import examples, only_with_all

from lakeproof.judge import split as split_module
from lakeproof.judge.scan import StructureError, container_end
from lakeproof.judge.split import Refused, TooLarge, split
from lakeproof.reasons import Reason

SPACE = b" \t\r\n"

json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
        st.sampled_from(['"', "\\", '"},{"', "]", '\\\\"', "{}"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=12,
)
# Pieces that matter to a splitter, in any order: mostly invalid JSON.
PIECES = rb"""[ ] { } , " \ : 1 x NaN {"a":1} }, },{ "a" \u0041 [] '""".split()
pieces = st.lists(st.sampled_from([*PIECES, b" ", b"\n", b"\r\n", b"\xff", b"\x00", b"\xef\xbb\xbf"]), max_size=25).map(
    b"".join
)


@st.composite
def broken_arrays(draw: st.DrawFn) -> bytes:
    """Generate valid arrays of records with a few bytes replaced."""
    records = draw(st.lists(json_values, max_size=6))
    text = json.dumps(records, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))).encode()
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(pieces) + text[at + draw(st.integers(0, 3)) :]
    return text


def units(value: bytes) -> list[bytes]:
    found = split(value)
    assert not isinstance(found, Refused), found
    return list(found)


def refusal(value: bytes) -> Reason:
    found = split(value)
    assert isinstance(found, Refused), list(found)
    assert found.detail
    return found.code


def array_byte_by_byte(value: bytes) -> list[bytes] | None:
    """Split an array by the plainest form of the rule; return None if the value is not exactly one array."""
    closers: list[int] = []
    found: list[bytes] = []
    begin, in_string, escaped = 1, False, False
    for at, byte in enumerate(value):
        if in_string:
            if escaped:
                escaped = False
            elif byte == ord("\\"):
                escaped = True
            elif byte == ord('"'):
                in_string = False
        elif byte == ord('"'):
            in_string = True
        elif byte in b"[{":
            closers.append(ord("]") if byte == ord("[") else ord("}"))
        elif byte in b"]}":
            if closers.pop() != byte:
                return None
            if not closers:
                last = value[begin:at].strip(SPACE)
                if at + 1 != len(value) or (found and not last):
                    return None
                return [*found, last] if last else []
        elif byte == ord(",") and len(closers) == 1:
            found.append(value[begin:at].strip(SPACE))
            begin = at + 1
            if not found[-1]:
                return None
    return None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"[]", []),
        (b" [ ] \n", []),
        (b"\xef\xbb\xbf[1]", [b"1"]),
        (b'\xef\xbb\xbf \n{"a":1}', [b'{"a":1}']),
        (b'[ {"a" : 1} ,\r\n\t2]', [b'{"a" : 1}', b"2"]),
        (b'["a,b]", "\\"]", "\\\\"]', [b'"a,b]"', b'"\\"]"', b'"\\\\"']),
        (
            b"[1,NaN,'x',{'a':1},{\"a\":01},\"\xff\",tru]",
            [b"1", b"NaN", b"'x'", b"{'a':1}", b'{"a":01}', b'"\xff"', b"tru"],
        ),
        (b'[{"a":1} {"b":2}, 3]', [b'{"a":1} {"b":2}', b"3"]),
        (b'[{"a":1,}]', [b'{"a":1,}']),
        (b'[{"a":[1,2},3]', None),
        (b'{"a":\n 1}\n', [b'{"a":\n 1}']),
        (b'{"a":1}\n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\r\n\r\n  \r\n{"b":2} \r\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\n  {"b":2}', [b'{"a":1}', b'  {"b":2}']),
        (b'{"a":1}\n12\n[3]\nnull\ngarbage', [b'{"a":1}', b"12", b"[3]", b"null", b"garbage"]),
        (b'{"a":1\n{"b":2}\n{"c":3}', [b'{"a":1', b'{"b":2}', b'{"c":3}']),  # first line truncated
        (b'{"a":1}\n{"b":2}\n{"c":', [b'{"a":1}', b'{"b":2}', b'{"c":']),  # last line truncated
        (b'{"a":1}{"b":2}\n{"c":3}', [b'{"a":1}{"b":2}', b'{"c":3}']),
        (b'{"a":"\n"}', [b'{"a":"\n"}']),
        (b'{\n"a":[\n{}\n]\n}', [b'{\n"a":[\n{}\n]\n}']),  # pretty-printed without indent
    ],
)
def test_forms(value: bytes, expected: list[bytes] | None) -> None:
    if expected is None:
        assert refusal(value) == "corrupt_batch"
    else:
        assert units(value) == expected


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"", "empty_batch"),
        (b" \r\n\t", "empty_batch"),
        (b"\xef\xbb\xbf", "empty_batch"),
        (b"null", "not_a_batch"),
        (b" -12.5e3 ", "not_a_batch"),
        (b"9" * 1100, "not_a_batch"),
        (b'"{}"', "not_a_batch"),
        (b'"a\\n\\u0041"', "not_a_batch"),
        (b"true", "not_a_batch"),
        (b'"\xff"', "corrupt_batch"),
        (b"01", "corrupt_batch"),
        (b"nul", "corrupt_batch"),
        (b"NaN", "corrupt_batch"),
        (b"hello", "corrupt_batch"),
        (b"<xml/>", "corrupt_batch"),
        (b"1 2", "corrupt_batch"),
        (b"]", "corrupt_batch"),
        (b'1\n{"a":1}', "corrupt_batch"),
        ("[{}]".encode("utf-16"), "corrupt_batch"),
        ("[{}]".encode("utf-16-le"), "corrupt_batch"),
        ("[{}]".encode("utf-16-be"), "corrupt_batch"),
        ('{"a":1}\n{"a":2}\n'.encode("utf-16-le"), "corrupt_batch"),
        (b"\xef\xbb\xbf\xef\xbb\xbf[]", "corrupt_batch"),
        (b"[", "corrupt_batch"),
        (b"[1", "corrupt_batch"),
        (b"[1,", "corrupt_batch"),
        (b"[1,]", "corrupt_batch"),
        (b"[,1]", "corrupt_batch"),
        (b"[1,,2]", "corrupt_batch"),
        (b"[,]", "corrupt_batch"),
        (b"[1]]", "corrupt_batch"),
        (b"[1][2]", "corrupt_batch"),
        (b"[1]\n[2]", "corrupt_batch"),
        (b"[] []", "corrupt_batch"),
        (b"[] x", "corrupt_batch"),
        (b'[{"a":1}] garbage', "corrupt_batch"),
        (b'[{"a":1]', "corrupt_batch"),
        (b'[{"a":1}', "corrupt_batch"),
        (b'[{"a":"1}]', "corrupt_batch"),
        (b'[{"a":"1\\', "corrupt_batch"),
        (b'{"a":1', "corrupt_batch"),
        (b'{"a":1}{"b":2}', "corrupt_batch"),
        (b'{"a":1}\r{"b":2}', "corrupt_batch"),
        (b'{"a":1} x', "corrupt_batch"),
        (b'{\n  "a": {\n    "b": 1\n  },\n  "c": [\n    {}\n', "corrupt_batch"),  # pretty-printed and truncated
    ],
)
def test_refusals(value: bytes, code: str) -> None:
    assert refusal(value) == code


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (b'[{"a":1}] x', "unexpected data after the array that ends at byte 8"),
        (b"[1,]", "expected a value, got ']' at byte 3"),
        (b'[{"a":1]', "unexpected ']' at byte 7"),
        (b'[{"a":1}, {"b": [', "batch ends at byte 17 with 2 unclosed brackets"),
        (b'[1, "abc', "batch ends at byte 8 inside the string that starts at byte 4"),
        (b'{"a":1}{}', "unexpected data after the object that ends at byte 6"),
    ],
)
def test_a_refusal_says_where(value: bytes, detail: str) -> None:
    assert split(value) == Refused(Reason.CORRUPT_BATCH, detail)


@given(st.lists(json_values, max_size=8), st.booleans(), st.sampled_from([None, 0, 2]))
def test_units_of_a_valid_array_are_its_elements(values: list[object], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    assert [json.loads(unit) for unit in units(text.encode())] == values


@settings(max_examples=examples(500))
@given(st.one_of(broken_arrays(), pieces.map(lambda text: b"[" + text + b"]"), pieces.map(lambda text: b"[" + text)))
@example(b'[{"a":1},{"b":2},{"c":NaN},{"d":[{"e":1},{"f":2}]}, 01,{"g":"},{"}]')
def test_arrays_are_split_as_byte_by_byte(text: bytes) -> None:
    text = text.strip(SPACE)
    if not text.startswith(b"["):
        return
    expected = array_byte_by_byte(text)
    for window in (4 << 20, 1, 9, 30):  # small windows have the same effect as large batches
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(split_module, "_WINDOW_BYTES", window)
            patch.setattr(split_module, "_SMALL_WINDOW_BYTES", max(window // 3, 1))
            patch.setattr(split_module, "_STRUCTURAL_BYTES", 1 + window // 9)
            found = split(text)
            assert (None if isinstance(found, Refused) else list(found)) == expected


@settings(max_examples=examples(500))
@given(st.one_of(st.binary(max_size=60), pieces, broken_arrays(), st.lists(broken_arrays()).map(b"\n".join)))
def test_any_bytes_are_accounted_for(value: bytes) -> None:
    found = split(value)
    if isinstance(found, Refused):
        return
    at = 0
    between = b""
    for unit in found:
        place = value.index(unit, at)
        between += value[at:place]
        at = place + len(unit)
        assert unit.strip(SPACE)
    between += value[at:]
    assert set(between.removeprefix(b"\xef\xbb\xbf")) <= set(SPACE + b"[],")


@given(st.binary(max_size=40).filter(lambda text: b"\n" not in text), st.integers(0, 3))
@example(b"\x00\t", 3)
def test_one_bad_line_costs_no_other(bad: bytes, at: int) -> None:
    lines = [b'{"a":1}', b'{"b":"}"}', b'{"c":[]}']
    if at == 0 and not bad.startswith(b"{"):
        return  # does not start like newline-delimited JSON
    lines.insert(at, bad)
    expected = [line.removesuffix(b"\r") for line in lines if line.strip(SPACE)]
    expected[-1] = expected[-1].rstrip(SPACE)  # trailing white space belongs to the batch, not to the last record
    assert units(b"\n".join(lines)) == expected


def test_windows_of_a_large_array() -> None:
    records = [b'{"i": %d, "items": [{"a": "},{"}, {"b": 1}], "pad": "%s"}' % (i, b"x" * 200) for i in range(50_000)]
    records[7] = b"NaN"
    records[40_000] = b'{"i": 01}'
    records[40_001] = b"[" * 2000 + b"]" * 2000
    records[49_999] = b'{"a": ' + b'"' + b"y" * (5 << 20) + b'", "n": NaN}'
    assert units(b"[" + b" , ".join(records[:100]) + b",\n" + b",".join(records[100:]) + b"]") == records


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 2_000_000,
        only_with_all(b"[" * 1_000_000 + b"]" * 1_000_000),
        b'[NaN,"' + rb"\"" * 1_000_000 + b'"]',
        b'[NaN,"' + b"a" * 2_000_000,
        b'[NaN,"' + rb"\"" * 1_000_000,
        b"[NaN,[" + b'"",' * 1_000_000 + b"1]]",
        only_with_all(b"[" + b"1," * 1_000_000 + b"x]"),
        b"[x" + b'"' * 2_000_001,
        only_with_all(b"[" + b'{"a":1},x,' * 300_000 + b"x]"),
        b"[" + b'{"a":[{},{},{}]},' * 150_000 + b"x]",
        only_with_all(b'{"a":{\n' + b'{"a":1}\n' * 300_000),
        only_with_all(b'{"a":{' + b'\n{"a":1} x' * 300_000),
        b"{" + b"\n" * 2_000_000,
        b" " * 2_000_000 + b"[]" + b" " * 2_000_000,
    ],
    ids=range(14),
)
def test_time_grows_with_the_input_only(value: bytes) -> None:
    began = time.process_time()
    found = split(value)
    if not isinstance(found, Refused):
        for _ in found:
            pass
    assert time.process_time() - began < 20  # takes about 1 s; anything quadratic takes minutes


def test_depth_of_brackets() -> None:
    assert container_end(b"{}", 0, 2) == (2, 1)
    assert container_end(b'{"a":[{"]":1}],"b":{}} x', 0, 24) == (22, 3)
    with pytest.raises(StructureError) as caught:
        container_end(b"[[[{", 0, 4)
    assert caught.value.depth == 4


def test_a_stack_that_fills_up_between_looking_and_splitting_is_no_harm() -> None:
    deep = b'{"a":' + b"[" * 600 + b"]" * 600 + b"}"
    records = [deep] + [b'{"pad":"%b"}' % (b"x" * 1000)] * 5_000
    found = split(b"[" + b",".join(records) + b"]")
    assert not isinstance(found, Refused)

    def consume(levels: int) -> list[bytes]:
        return consume(levels - 1) if levels else list(found)

    assert consume(450) == records


@settings(max_examples=examples(500))
@given(
    st.one_of(st.binary(max_size=60), pieces, broken_arrays(), st.lists(broken_arrays()).map(b"\n".join)),
    st.integers(0, 30),
)
def test_units_over_the_limit_are_told_by_their_size(value: bytes, most: int) -> None:
    whole, limited = split(value), split(value, most)
    if isinstance(whole, Refused) or isinstance(limited, Refused):
        assert whole == limited
    else:
        assert list(limited) == [unit if len(unit) <= most else TooLarge(len(unit)) for unit in whole]


def test_a_long_string_is_told_without_reading_it() -> None:
    text = b'"' + b"a" * (17 << 20) + b'"'
    assert refusal(text) == "not_a_batch"
    assert refusal(text[:-1]) == "corrupt_batch"
    assert refusal(text + b"1") == "corrupt_batch"
    assert refusal(b"a" + text) == "corrupt_batch"
