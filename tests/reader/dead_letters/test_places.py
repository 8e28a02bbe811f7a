"""The place of a reason is found in any bytes, with carets below it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from reader.dead_letters.places import as_characters, find_place, underlined
from reader.dead_letters.report import parts_of_time, sparkline

RECORD = b'{"user_id": 1, "tags": ["a", {"odd key": NaN}], "tags": [], "n\\u00e9": "\xff", "deep": {"x": {}}}'


@pytest.mark.parametrize(
    ("path", "detail", "expected"),
    [
        ("$.user_id", "expected a string, got 1", '"user_id": 1'),
        ("$.deep.x", "", '"x": {}'),
        ("$.missing", "required", "}"),  # the end of the object that lacks the key
        ("$.deep.missing", "required", "}"),
        ("$['né']", "", '"n\\u00e9": "\udcff"'),
        ("$.tags", "the key is there twice", '"tags": []'),  # the last one
        ("$", "invalid UTF-8 at byte 3", "s"),
        ("$", "Expecting value at byte 0", "{"),
        ("$.user_id[3]", "", None),
        ("$", "no place", None),
        ("nonsense", "", None),
        ("$", "at byte 99999", None),
    ],
)  # fmt: skip
def test_the_place_of_a_reason(path: str, detail: str, expected: str | None) -> None:
    place = find_place(RECORD, path, detail)
    found = None if place is None else as_characters(RECORD)[slice(*place)]
    assert found == expected


def test_places_in_arrays_and_behind_what_is_no_json() -> None:
    raw = b'{"a": [1, {"b": [true, nul]}], "c": {'
    for path, expected in (("$.a[0]", "1"), ("$.a[1].b[1]", "nul"), ("$.a[1].b", '"b": [true, nul]')):
        place = find_place(raw, path, "")
        assert place is not None
        assert raw.decode()[slice(*place)] == expected
    assert find_place(raw, "$.c", "") is None  # the value has no end
    assert find_place(b"\xef\xbb\xbf" + b'{"a": 1}', "$.a", "") == (2, 8)


@pytest.mark.parametrize("width", [30, 80, 200])
def test_carets_are_below_the_place(width: int) -> None:
    raw = b'{"k": "' + "日本\x1b[2J\t".encode() * 30 + b'", "bad": "\xff\xfe", "rest": "' + b"x" * 300 + b'"}'
    line, carets = underlined(raw, find_place(raw, "$.bad", ""), width)
    assert "\x1b" not in line
    assert cell_len(line) <= width
    begin = len(carets) - len(carets.lstrip())
    at = line.index('"bad')
    assert cell_len(line[:at]) == begin
    if width > 30:
        assert r'"bad": "\xFF\xFE"' in line


@given(st.binary(max_size=200), st.sampled_from(["$.a", "$.a.b", "$[0]", "$"]), st.integers(0, 300), st.integers(5, 99))
def test_any_bytes_can_be_shown(raw: bytes, path: str, byte: int, width: int) -> None:
    place = find_place(b'{"a": ' + raw, path, f"something at byte {byte}")
    line, carets = underlined(raw, place if place and place[1] <= len(as_characters(raw)) else None, width)
    assert line.isprintable() or not line
    assert set(carets) <= {" ", "^"}
    assert cell_len(line) <= max(width, 22)


def test_a_sparkline_has_a_blank_for_nothing() -> None:
    assert sparkline([0, 1, 4, 8]) == " ▁▄█"
    assert sparkline([]) == ""
    assert sparkline([1, 1_000_000]) == "▁█"


@pytest.mark.parametrize(("hours", "parts", "length"), [(1, 1, 1), (24, 24, 1), (25, 13, 2), (24 * 365, 24, 365)])
def test_time_is_divided_into_equal_parts(hours: int, parts: int, length: int) -> None:
    first = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
    start = first.replace(minute=0)
    each = [(start + timedelta(hours=number), 1) for number in range(hours)]
    counts, found = parts_of_time(each, first, start + timedelta(hours=hours - 1, minutes=59))
    assert (len(counts), found, sum(counts)) == (parts, length, hours)
    assert set(counts[:-1]) <= {length}
