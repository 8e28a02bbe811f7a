"""Messages to events: which are read, and why others are set aside."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.modes.events import BadMessageError, Event, parser
from lakeproof.contracts import TimeForm, TimeFormat
from lakeproof.kafka.modes import Fields

DEDUPE = Fields("eventId", "eventTime")
WINDOWS = Fields("eventId", "eventTime", "userId", "amount", "eventType")
TIME = 1_704_067_200_000_000
GOOD: dict[str, Any] = {
    "eventId": "1",
    "eventTime": "2024-01-01T00:00:00Z",
    "userId": "u",
    "amount": 1.5,
    "eventType": "buy",
}


def value(**changes: object) -> bytes:
    return json.dumps(GOOD | changes).encode()


def test_two_fields_are_enough() -> None:
    text = b'{"eventId":"1","eventTime":"2024-01-01T00:00:00Z","payload":"hello"}'
    assert parser(DEDUPE)(text) == Event("1", TIME)


def test_names_of_fields_can_be_others() -> None:
    text = b'{"id":"1", "at":"2024-01-01T01:00:00+01:00", "eventId": 5}'
    assert parser(Fields("id", "at"))(text) == Event("1", TIME)


@pytest.mark.parametrize(
    ("form", "token"),
    [
        (TimeForm(TimeFormat.EPOCH_S), "1704067200.000"),
        (TimeForm(TimeFormat.EPOCH_MS), "1704067200000"),
        (TimeForm(TimeFormat.SPACE_LOCAL, "Europe/Berlin"), '"2024-01-01 01:00:00"'),
        (TimeForm(TimeFormat.DATE), '"2024-01-01"'),
    ],
)
def test_the_event_time_can_have_another_form(form: TimeForm, token: str) -> None:
    read = parser(WINDOWS, form)
    rest = '"eventId":"1","userId":"u","amount":1.5,"eventType":"b"}'
    assert read(f'{{"eventTime":{token},{rest}'.encode()).time == TIME
    for other, reason in (("null", "null_field"), ("true", "wrong_type"), ('"x"', None), ("[1]", "wrong_type")):
        with pytest.raises(BadMessageError) as caught:
            read(f'{{"eventTime":{other},{rest}'.encode())
        assert caught.value.reason == (reason or ("wrong_type" if form.format.per_second else "wrong_format"))
    with pytest.raises(BadMessageError):
        parser(DEDUPE)(f'{{"eventTime":{token},{rest}'.encode())


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        (b"", "malformed_record", "not valid JSON at byte 0"),
        (b"\x00\xff\xfe", "malformed_record", "not valid JSON at byte 0"),
        (b"Infinity", "malformed_record", "not valid JSON: Infinity"),
        (b'{"eventId":NaN,"eventTime":"2024-01-01T00:00:00Z"}', "malformed_record", "not valid JSON: NaN"),
        (b'{"eventId":"1","eventTime":"2024-01-01T00:00:00Z","x":-Infinity}', "malformed_record", "-Infinity"),
        (b"[]", "not_an_object", "expected an object, got an array"),
        (b'"text"', "not_an_object", 'expected an object, got "text"'),
        (b'{"eventTime":"2024-01-01T00:00:00Z"}', "missing_field", "eventId: required, but missing"),
        (b'{"eventId":null,"eventTime":"2024-01-01T00:00:00Z"}', "null_field", "eventId: required, but null"),
        (b'{"eventId":1,"eventTime":"2024-01-01T00:00:00Z"}', "wrong_type", "eventId: expected a string, got 1"),
        (b'{"eventId":"","eventTime":"2024-01-01T00:00:00Z"}', "wrong_length", "eventId"),
        (b'{"eventId":"1","eventTime":1704067200}', "wrong_type", "eventTime: expected a string, got 1704067200"),
        (b'{"eventId":"1","eventTime":"2024-01-01"}', "wrong_format", "eventTime"),
        (b'{"eventId":"1","eventTime":"2024-01-01T00:00:00"}', "wrong_format", "eventTime"),
        (b'{"eventId":"1","eventId":"2","eventTime":"2024-01-01T00:00:00Z"}', "duplicate_key", "eventId"),
        (b'{"eventId":"1","eventTime":"2024-01-01T00:00:00Z","x":"\xff"}', "invalid_utf8", "byte"),
        (b'{"eventId":"1","eventTime":"2024-01-01T00:00:00Z"} {}', "malformed_record", "not valid JSON at byte 51"),
        (b'{"eventId":"1","eventTime":"2024-01-01T00:00:00Z","x":' + b"[" * 100_000, "too_deep", "deeply"),
    ],
)
def test_a_message_that_is_no_event_has_a_reason(text: bytes, reason: str, words: str) -> None:
    with pytest.raises(BadMessageError) as caught:
        parser(DEDUPE)(text)
    assert caught.value.reason == reason
    assert words in caught.value.detail


def test_windows_say_what_the_user_is_for() -> None:
    """The event of `dedupe` in docs/modes.md has no user."""
    hello = b'{"eventId":"1","eventTime":"2024-01-01T00:00:00Z","payload":"hello"}'
    with pytest.raises(BadMessageError) as caught:
        parser(WINDOWS)(hello)
    assert caught.value.reason == "missing_field"
    assert caught.value.detail == "userId: required, but missing: each window is of one user"


def test_an_object_within_may_have_a_field_of_the_same_name() -> None:
    text = b'{"inner":{"eventId":"9","eventId":"8"},"eventId":"1","eventTime":"2024-01-01T00:00:00Z"}'
    assert parser(DEDUPE)(text).id == "1"


def test_a_long_number_is_no_reason_to_refuse_such_an_object() -> None:
    """Python converts no integers of more than 4,300 digits. Nobody asks it to."""
    text = b'{"x":%s,"inner":{"eventId":"9"},"eventId":"1","eventTime":"2024-01-01T00:00:00Z"}'
    for number in (b"1" * 5_000, b"1" * 5_000 + b".5", b"1e5000"):
        assert parser(DEDUPE)(text % number).id == "1"
    with pytest.raises(BadMessageError) as caught:
        parser(DEDUPE)((text % (b"1" * 5_000)).replace(b'"x"', b'"eventId":"2","x"'))
    assert caught.value.reason == "duplicate_key"


def spellings(text: str) -> st.SearchStrategy[bytes]:
    """Draw a JSON string for a text: each character as it is, or as an escape sequence."""

    def of(character: str) -> st.SearchStrategy[str]:
        units = character.encode("utf-16-be")
        escaped = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        others = [plain, escaped, escaped.replace("\\u", "\0").upper().replace("\0", "\\u")]
        return st.sampled_from([*others, "\\/"] if character == "/" else others)

    return st.tuples(*map(of, text)).map(lambda found: f'"{"".join(found)}"'.encode())


@given(st.data())
@pytest.mark.parametrize("field", ["eventId", "ä", "a/b", "😀"])
def test_a_field_is_a_duplicate_in_any_spelling(field: str, data: st.DataObject) -> None:
    first, second = data.draw(spellings(field)), data.draw(spellings(field))
    read = parser(Fields(field, "eventTime"))
    rest = b'"eventTime":"2024-01-01T00:00:00Z"'
    with pytest.raises(BadMessageError) as caught:
        read(b'{%b:"1",%b,%b:"2"}' % (first, rest, second))
    assert (caught.value.reason, caught.value.detail) == ("duplicate_key", f"{field}: the object has it twice")
    assert read(b'{%b:"1",%b,"other":%b}' % (first, rest, second)) == Event("1", TIME)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"amount": None}, "null_field"),
        ({"amount": "1.5"}, "wrong_type"),
        ({"amount": True}, "wrong_type"),
        ({"amount": 0.1234567}, "out_of_range"),
        ({"amount": 10**12}, "out_of_range"),
        ({"userId": None}, "null_field"),
        ({"eventType": 5}, "wrong_type"),
    ],
)
def test_windows_need_a_user_an_amount_and_a_type(changes: dict[str, object], reason: str) -> None:
    assert parser(WINDOWS)(value()) == Event("1", TIME, "u", Decimal("1.5"))
    with pytest.raises(BadMessageError) as caught:
        parser(WINDOWS)(value(**changes))
    assert caught.value.reason == reason


@given(st.decimals(-(10**12) + 1, 10**12 - 1, places=6))
def test_amounts_are_exact(amount: Decimal) -> None:
    text = value().replace(b"1.5", f"{amount:f}".encode())
    assert parser(WINDOWS)(text).amount == amount


@given(
    st.binary(max_size=60) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_message_is_an_event_or_has_a_reason(text: bytes) -> None:
    try:
        known = parser(DEDUPE)(text).id
    except BadMessageError as error:
        known = error.detail
    assert known
