"""Splitting posts: the fast path and the one that finds faults agree, even for unusual JSON."""

import json
import random
import time
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.answers import Refusal
from collector.events import read_events
from collector.faults import Bounds, find_faults

BOUNDS = Bounds(events=20, bytes=100_000, depth=6)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
events = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1) | st.integers(),
        "type": st.text(max_size=10),
        "event": st.dictionaries(st.text(max_size=5), json_values, max_size=4),
    },
    optional={"more": json_values},
)
posts = st.lists(events | json_values, max_size=25) | json_values


def status(body: bytes) -> int:
    """Return the status of a post; 202 if its values are exactly those in its text."""
    try:
        read = read_events(body, BOUNDS)
    except Refusal as refused:
        return refused.status
    assert json.loads(b"[%s]" % b",".join(read.values)) == json.loads(body)
    assert [int(key) for key in read.keys] == [json.loads(value)["id"] for value in read.values]
    assert all(value in body for value in read.values)
    return HTTPStatus.ACCEPTED


def expected(post: object) -> set[int]:
    """Return the statuses that a post may get, based on its meaning."""
    if not isinstance(post, list) or post == []:
        return {422}
    fitting = len(post) <= BOUNDS.events and all(map(is_event, post))
    return {202} if fitting and levels_of(post) <= BOUNDS.depth + 1 else {413, 422}


def is_event(value: object) -> bool:
    return (
        isinstance(value, dict)
        and type(value.get("id")) is int
        and -(2**63) <= value["id"] < 2**63
        and type(value.get("type")) is str
        and type(value.get("event")) is dict
    )


def levels_of(value: object) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(levels_of, value.values() if isinstance(value, dict) else value), default=0)


def is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@given(posts, st.sampled_from([None, 1]), st.booleans())
def test_a_post_is_accepted_if_and_only_if_it_has_no_fault(post: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(post, indent=indent, ensure_ascii=ascii_only)
    found = status(text.encode())
    assert found in expected(post)
    assert (find_faults(text, BOUNDS) == []) == (found == HTTPStatus.ACCEPTED or post == [])


@given(st.lists(events, min_size=1, max_size=4), st.randoms(use_true_random=False), st.integers(1, 3))
def test_damaged_posts_are_refused_or_mean_what_they_say(post: object, chance: random.Random, times: int) -> None:
    body = bytearray(json.dumps(post, ensure_ascii=False).encode())
    for _ in range(times):
        place = chance.randrange(len(body) + 1)
        kind = chance.choice(["insert", "remove", "flip"])
        if kind == "insert":
            body[place:place] = chance.choice([b"{", b"[", b"]", b"}", b'"', b",", b"\\", b"\xff", b"0", b"\x00", b"-"])
        elif kind == "remove":
            del body[place : place + chance.randrange(1, 9)]
        elif place < len(body):
            body[place] ^= 1 << chance.randrange(8)
    try:
        meant = json.loads(body.decode(), parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        assert status(bytes(body)) == HTTPStatus.BAD_REQUEST
    else:
        assert status(bytes(body)) in (expected(meant) if is_text(meant) else {400, 422})


@pytest.mark.parametrize("levels", [5, 6, 7, 900, 5_000, 1_000_000])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_levels_are_counted_exactly(levels: int, brackets: str) -> None:
    opening = "[" if brackets == "[]" else '{"[{":'
    inner = opening * (levels - 3) + brackets + brackets[1] * (levels - 3)
    body = b'[{"id":1,"type":"{{{{{{{{","event":{"a":%s}}]' % inner.encode()
    bounds = Bounds(20, 100_000_000, 6)
    if levels <= 6:
        assert len(read_events(body, bounds).values) == 1
        return
    with pytest.raises(Refusal) as refused:
        read_events(body, bounds)
    assert refused.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert [(fault.index, fault.path) for fault in refused.value.problem.faults] == [(0, "$")]


def test_no_more_than_a_hundred_faults_are_named() -> None:
    body = json.dumps([{}] * 1_000).encode()
    with pytest.raises(Refusal) as refused:
        read_events(body, Bounds(10_000, 100, 6))
    assert len(refused.value.problem.faults) == 100


@pytest.mark.parametrize(
    "body",
    [
        '[{"id":1,"type":"a","event":{"a":[' + ",".join(["[]"] * 1_390_000) + "]}}]",
        '[{"id":1,"type":"a","event":{"a":[' + ",".join(["[]"] * 1_390_000) + "]}},5]",
        '["' + r"\u0041" * 690_000 + '"]',
        "[" + ",".join(["0"] * 2_000_000) + "]",
        '[{"id":1,"event":{"a":[' + ",".join(['""'] * 1_380_000) + "]}}]",
        "[" + ",".join(['{"id":1,"type":"","event":' + "[" * 60 + "]" * 60 + "}"] * 28_000) + "]",
    ],
    ids=["arrays", "arrays and a fault", "escapes", "numbers", "strings", "nested"],
)
def test_faults_of_a_large_body_are_found_soon(body: str) -> None:
    """The check blocks everything else. The bound leaves room for a busy machine: most bodies take a tenth of it."""
    began = time.process_time()
    with pytest.raises(Refusal):
        read_events(body.encode(), Bounds(1000, 512 * 1024, 64))
    assert time.process_time() - began < 1.5
