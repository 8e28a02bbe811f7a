"""All errors of a file are reported at once, each with its line, its column and a caret."""

import pickle
import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lakeproof.contracts import Contract, DecimalType, parse_contract
from lakeproof.documents.source import RefusedError, Source, Span, read_source
from lakeproof.errors import UsageError

EVENTS = (Path(__file__).parents[3] / "contracts" / "events.yaml").read_text()

# The old text, the new text, the wrong word, and the message; the errors are independent of each other.
MISTAKES = [
    ("version: 1.1.0", "version: [1]", "[1]", "version: expected a string, got a list."),
    ("status: active", "stauts: active", "stauts", "unknown key 'stauts'."),
    ("property: eventTime", "property: eventtime", "eventtime", "unknown custom property 'eventtime'"),
    ("name: user_id\n        logicalType: string", "name: user_id\n        logicalType: strin", "strin",
     "user_id: unknown type 'strin'."),
    ("description: Who did it.", "description: Who did it.\n        unqiue: true", "unqiue",
     "user_id: unknown key 'unqiue'."),
    ("primaryKeyPosition: 1", "primaryKeyPosition: one", "one",
     "event_id: primaryKeyPosition: expected a whole number, got 'one'"),
    ("required: true\n        enum", "required: perhaps\n        enum", "perhaps",
     "event_type: required: expected true or false, got 'perhaps'."),
    ("- value: purchase", "- value: yes", "yes", "event_type: expected a string, got a boolean."),
    ("name: product_id", "name: _product", "_product", "_product: '_product' is not a valid name for a property."),
    ("physicalType: scalar", "physicalType: text", "text", "properties: unknown type 'text' for a string."),
]  # fmt: skip


def broken(mistakes: list[tuple[str, str, str, str]]) -> str:
    text = EVENTS
    for old, new, _, _ in mistakes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def refusal(text: str) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        parse_contract(text.encode(), "events.yaml")
    return caught.value


def underlined(excerpt: str) -> str:
    """Return the part of an excerpt that is above the carets."""
    line, carets = excerpt.splitlines()
    start = carets.index("^")
    return line[start : start + carets.count("^")]


def test_all_mistakes_are_told_at_once() -> None:
    error = refusal(broken(MISTAKES))
    assert len(error.problems) == len(MISTAKES)
    for (_, _, word, says), (message, excerpt, hint) in zip(MISTAKES, error.problems, strict=True):
        assert re.match(r"events\.yaml:\d+:\d+: ", message)
        assert says in message
        assert underlined(excerpt) == word
        assert hint
    assert error.message == f"{error.problems[0][0]} (1 of {len(MISTAKES)} errors)"
    assert str(error).count("Error: ") == len(MISTAKES) - 1  # the command adds it to the first one
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("pair", list(combinations(MISTAKES, 2)), ids=lambda pair: f"{pair[0][2]}, {pair[1][2]}")
def test_no_mistake_hides_another_or_makes_a_third(pair: tuple[tuple[str, str, str, str], ...]) -> None:
    found = [underlined(excerpt) for _, excerpt, _ in refusal(broken([*pair])).problems]
    assert sorted(found) == sorted(word for _, _, word, _ in pair)


def test_the_column_is_that_of_the_word() -> None:
    for mistake in MISTAKES:
        text = broken([mistake])
        ((message, _, _),) = refusal(text).problems
        line, column = map(int, message.split(":")[1:3])
        assert text.splitlines()[line - 1][column - 1 :].startswith(mistake[2])


def test_what_refers_to_a_broken_field_is_not_told() -> None:
    text = EVENTS.replace("logicalType: timestamp", "logicalType: time")
    text += (
        "    quality: [{type: sql, name: a, query: event_timestamp IS NULL}, {type: sql, name: b, query: nobody > 1}]\n"
    )
    says = [message.partition(" ")[2] for message, _, _ in refusal(text).problems]
    assert says == ["event_timestamp: unknown type 'time'.", "invalid rule b: unknown field nobody."]


def test_a_misspelt_key_is_not_missing_as_well() -> None:
    for old, new in (("version: 1", "verson: 1"), ("value: event_timestamp", "vlaue: event_timestamp")):
        assert len(refusal(EVENTS.replace(old, new)).problems) <= 2
    text = EVENTS.replace("name: product_id\n        logicalType", "name: product_id\n        logicaltype")
    assert [hint for _, _, hint in refusal(text).problems] == ["Did you mean logicalType?"]


def test_several_constraints() -> None:
    text = EVENTS.replace(
        "name: product_id\n", "name: product_id\n        logicalTypeOptions: {minLength: -1, pattern: '(', format: x}\n"
    )
    assert [underlined(excerpt) for _, excerpt, _ in refusal(text).problems] == ["-1", "'('", "format"]


FIELD = "name: product_id\n        logicalType: string"


def with_field(text: str) -> Contract:
    return parse_contract(
        EVENTS.replace(f"- {FIELD}", f"- {{name: product_id, {text}}}\n      - {FIELD}x")
        .replace("logicalType: stringx", "logicalType: string")
        .replace("- name: product_id", "- name: other")
        .encode(),
        "x",
    )


@pytest.mark.parametrize("space", ["", " "])
def test_decimals_need_no_quotes_in_flow_style(space: str) -> None:
    for form in (f"decimal(12,{space}2)", f"'decimal(12,{space}2)'"):
        for text in (f"physicalType: {form}, required: true", f"required: true, physicalType: {form}"):
            field = with_field(f"logicalType: number, {text}").fields[4]
            assert (field.type, field.required) == (DecimalType(12, 2), True)


def test_what_only_looks_like_a_decimal_is_refused() -> None:
    for form in ("decimal(12", "decimal(12,2", "decimal(12, x)", "decimal(1,2,3)"):
        with pytest.raises(UsageError):
            with_field(f"logicalType: number, physicalType: {form}")


def test_enums_may_be_plain_lists() -> None:
    assert with_field("logicalType: string, enum: [a, {value: b}, 'yes', 1.50]").fields[4].allowed == (
        "a", "b", "yes", "1.50")  # fmt: skip
    assert with_field("logicalType: boolean, enum: [true]").fields[4].allowed == ("true",)
    for values, says in (
        ("[a, no]", "expected a string, got a boolean"),
        ("[a, null]", "'null' is not a value"),
        ("[a, [b]]", "expected keys and values, got a list"),
        ("a", "enum: expected a list, got a string"),
    ):
        with pytest.raises(UsageError, match=says):
            with_field(f"logicalType: string, enum: {values}")


# A line has no line ends, which are in Cc, Zl and Zp.
LINES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=300)


@given(LINES, st.integers(0, 310), st.integers(1, 50))
def test_carets_are_below_what_they_are_about(line: str, start: int, length: int) -> None:
    start = min(start, len(line))
    shown, below = Source(None, {}, {}, [line]).excerpt(Span(1, start + 1, length)).splitlines()
    head, text = shown[: len("  1 | ")], shown[len("  1 | ") :]
    assert head == "  1 | "
    assert text.strip("…") in line
    assert len(text) <= 102
    before = below.index("^")
    marked = line[start : start + length]
    assert cell_len(below[:before]) <= cell_len(shown)
    if marked.isascii() and line.isascii():
        assert shown[before:].startswith(marked[: below.count("^")])


def test_a_tab_stays_a_tab() -> None:
    assert Source(None, {}, {}, ["a:\tb"]).excerpt(Span(1, 4, 1)).splitlines() == ["  1 | a:\tb", "    |   \t^"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(encoding: str, end: str) -> None:
    text = f"ä: 1{end}b: [{end}"
    with pytest.raises(RefusedError) as caught:
        read_source(text.encode(encoding), "x.yaml")
    source = read_source(f"ä: 1{end}b: 日本{end}".encode(encoding), "x.yaml")
    assert source.excerpt(source.span(("b",))) == "  2 | b: 日本\n    |    ^^^^"
    assert "not valid YAML" in caught.value.message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_contract_is_utf_8(encoding: str) -> None:
    with pytest.raises(UsageError, match=r"^events.yaml: expected UTF-8") as caught:
        parse_contract(EVENTS.encode(encoding), "events.yaml")
    assert caught.value.hint == "Save the file as UTF-8."
    assert parse_contract(EVENTS.encode("utf-8-sig"), "events.yaml").stream == "events"


@pytest.mark.parametrize("quoted", ['"\\ud83d\\ude00"', '"\\U0001F600"', "'\U0001f600'"])
def test_characters_may_be_escaped_as_in_json(quoted: str) -> None:
    text = EVENTS.replace("description: Who did it.", f"description: {quoted}\n        enum: [{quoted}]")
    contract = parse_contract(text.encode(), "events.yaml")
    (user,) = (field for field in contract if field.name == "user_id")
    assert (user.description, user.allowed) == ("\U0001f600", ("\U0001f600",))


def test_half_of_a_character_is_refused_where_it_is() -> None:
    error = refusal(EVENTS.replace("description: Who did it.", 'description: "a \\ud83d b"'))
    assert "half of a character" in error.message
    assert '"a \\ud83d b"' in str(error)
