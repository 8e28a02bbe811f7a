"""API keys: hashed in a file that may change at any time, with a rate for each client."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.collector.running import Collector, at, event, messages, wait_for
from tests.servers import KafkaServer

from collector.answers import Refusal
from collector.keys import Allowance, Keys, new_key
from lakeproof.errors import UsageError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def client(keys: Keys, key: str) -> str | int:
    try:
        return keys.client(key).name
    except Refusal as refused:
        return refused.status


def test_a_client_may_have_an_old_and_a_new_key_while_one_replaces_the_other(tmp_path: Path, clock: Clock) -> None:
    path, old, new = tmp_path / "keys", new_key("shop"), new_key("shop")
    path.write_text(f"# keys\n\n{old.line}  # until May\n")
    keys = Keys(path, None, clock)
    assert [client(keys, each.key) for each in (old, new)] == ["shop", 401]
    path.write_text(f"{old.line}\n{new.line}\n")
    assert client(keys, new.key) == 401  # the collector checks the file once a second
    clock.now += 1
    assert [client(keys, each.key) for each in (old, new)] == ["shop", "shop"]
    path.write_text(f"{new.line}\n")
    clock.now += 1
    assert [client(keys, each.key) for each in (old, new)] == [401, "shop"]
    assert [client(keys, key) for key in ("", "x", new.line.split()[1], "\udcff")] == [401] * 4


@pytest.mark.parametrize("damage", ["remove", "empty line of junk", "not UTF-8", "folder"])
def test_a_file_that_cannot_be_read_leaves_the_keys_as_they_were(tmp_path: Path, clock: Clock, damage: str) -> None:
    path, key, other = tmp_path / "keys", new_key("shop"), new_key("other")
    path.write_text(key.line)
    keys = Keys(path, None, clock)
    if damage in ("remove", "folder"):
        path.unlink()
    if damage == "folder":
        path.mkdir()
    if damage == "empty line of junk":
        path.write_text(f"{other.line}\njunk\n")
    if damage == "not UTF-8":
        path.write_bytes(b"\xff")
    for _ in range(3):
        clock.now += 1
        assert [client(keys, each.key) for each in (key, other)] == ["shop", 401]
    if damage == "folder":
        path.rmdir()
    replacement = tmp_path / "new"
    replacement.write_text(other.line)
    os.replace(replacement, path)  # noqa: PTH105 - as an operator does
    clock.now += 1
    assert [client(keys, each.key) for each in (key, other)] == [401, "other"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "Cannot read"),
        ("shop", "line 1: expected CLIENT SHA256"),
        ("\nshop KEY", "line 2: expected CLIENT SHA256"),
        ("a b " + "0" * 64, "line 1"),
        (f"shop {'0' * 64} fast", "line 1"),
        (f"shop {'0' * 64} 5\nstop {'1' * 64} 0", "line 2: expected a rate above 0, got 0"),
        (f"shop {'0' * 64} 0.00", "line 1: expected a rate above 0"),
        (f"shop {'0' * 64} 5\nshop {'1' * 64} 6", "line 2: shop has two different rates"),
    ],
)
def test_a_start_with_a_wrong_file_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "keys"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=words):
        Keys(path, None)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a/b"])
def test_a_client_has_a_plain_name(name: str) -> None:
    with pytest.raises(UsageError, match="not the name of a client"):
        new_key(name)


@given(
    st.floats(0.5, 1000),
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 50)), min_size=1, max_size=60),
)
def test_a_client_never_sends_more_than_its_rate_and_a_burst(rate: float, posts: list[tuple[float, int]]) -> None:
    clock = Clock()
    allowance = Allowance(rate, clock)
    sent, began = 0, clock.now
    for pause, count in posts:
        clock.now += pause
        try:
            allowance.take(count)
        except Refusal as refused:
            wait = int(dict(refused.headers)[b"retry-after"])
            clock.now += wait + 1e-6
            allowance.take(count)  # accepted, since it waited as long as required
        # One post may exceed the bucket; later posts wait.
        assert sent <= rate * (clock.now - began) + rate * 2 + 1e-3
        sent += count


def test_reading_the_file_again_does_not_fill_the_bucket(tmp_path: Path, clock: Clock) -> None:
    path, key = tmp_path / "keys", new_key("shop")
    path.write_text(key.line)
    keys = Keys(path, 10, clock)
    keys.client(key.key).allowance.take(20)
    path.write_text(f"{key.line}\n")
    clock.now += 1
    with pytest.raises(Refusal):
        keys.client(key.key).allowance.take(20)
    path.write_text(f"{key.line} 1000\n")
    clock.now += 1
    keys.client(key.key).allowance.take(20)


def test_posts_need_a_key_and_carry_the_name_of_their_client(
    start_collector: Any, kafka: KafkaServer, tmp_path: Path
) -> None:
    path, key, slow, late = tmp_path / "keys", new_key("shop"), new_key("slow"), new_key("late")
    path.write_text(f"{key.line}\n{slow.line} 0.01\n")  # so slow that no pause of a busy machine refills its bucket
    running: Collector = start_collector(collector_keys=path).ready()
    assert key.key not in path.read_text()
    refused = [running.post([event(1)]), running.post([event(1)], authorization="Bearer x")]
    assert [answer.status for answer in refused] == [401, 401]
    assert refused[0].headers["www-authenticate"] == "Bearer"
    assert running.post([event(1)], authorization=f"Basic {key.key}").status == 401
    accepted = running.post([event(1)], authorization=f"Bearer {key.key}", idempotency_key="k")
    beacon = running.request(
        "POST", f"/collect?key={key.key}", b'[{"id":2,"type":"a","event":{}}]', {"content-type": "application/json"}
    )
    assert [accepted.status, beacon.status] == [202, 202]
    landed = at(messages(kafka.bootstrap_servers, running.settings["LAKE_COLLECTOR_TOPIC"]))
    headers = [
        landed[each["partition"], each["offset"]].headers
        for each in (accepted.json["receipts"] + beacon.json["receipts"])
    ]
    assert headers == [{"client": b"shop", "idempotency-key": b"k", "idempotency-index": b"0"}, {"client": b"shop"}]

    answers = [running.post([event(1)] * 2, authorization=f"Bearer {slow.key}") for _ in range(2)]
    assert [answer.status for answer in answers] == [202, 429]
    assert 0 < int(answers[1].headers["retry-after"]) <= 200

    path.write_text(late.line)
    wait_for(lambda: running.post([event(1)], authorization=f"Bearer {late.key}").status == 202)
    assert running.post([event(1)], authorization=f"Bearer {key.key}").status == 401
    log = running.log.read_text()
    assert not [each for each in (key, slow, late) if each.key in log or each.line.split()[1] in log]
    assert {line["client"] for line in running.logged("post")} == {None, "shop", "slow", "late"}
