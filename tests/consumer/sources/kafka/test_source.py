"""A topic as a source: the outcome of messages, and changes of the topic, its brokers and the checkpoint."""

import itertools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.consumer.crashes import crash_before
from tests.consumer.lake import Drain, SessionOf, rows
from tests.hashes import check_hashes
from tests.lakes import changed
from tests.messages import event, messages, send, send_in_transaction
from tests.selection import first_by_default
from tests.servers import KafkaServer

from consumer.app.repair import give_up_offsets, lost_offsets, reset, topic_of
from consumer.queries.bronze import BronzeQuery
from consumer.queries.bulletin import Bulletin
from consumer.queries.trigger import Trigger
from consumer.sources.kafka.read import MessagesLostError
from consumer.sources.kafka.source import KafkaSource, advanced
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query, checkpoint_folder
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.history.apply import adopt
from lakeproof.kafka.offsets import Offsets, source_name
from lakeproof.kafka.recorded import Recorded
from lakeproof.kafka.topic import Extent, Topic
from lakeproof.settings import Limits, Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.given_up import give_up_before, given_up_before
from lakeproof.state.lease import lease
from lakeproof.storage.local import local_path

pytestmark = pytest.mark.spark

Take = Callable[..., None]
Unit = tuple[str, int]


def units(settings: Settings, table: str) -> list[Unit]:
    return sorted((row["_source"], row["_position"]) for row in rows(settings, f"{table}.events"))


def ledger(settings: Settings) -> list[dict[str, Any]]:
    return sorted(rows(settings, "ledger.events"), key=lambda row: str(row["source"]))


def test_a_message_is_a_record_or_an_array_and_keeps_its_key_and_headers(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic(partitions=2)
    send(kafka, topic, [event(1)], key=b"k\xff", headers=[("trace", b"\x00"), ("trace", None)])
    send(kafka, topic, [b"[%b, {}, %b]" % (event(2), event(3)), b"[]"], partition=1)
    with capture_logs() as logs:
        take(topic, threads=True)  # as in the program
    assert [log["waiting"] for log in logs if log["event"] == "started"] == [{"offsets": 3}]
    first, array = source_name(topic, 0, 0), source_name(topic, 1, 0)
    assert units(lake_settings, "bronze") == [(first, 0), (array, 0), (array, 2)]
    assert units(lake_settings, "dead_letters") == [(array, 1)]
    row = next(row for row in rows(lake_settings, "bronze.events") if row["_source"] == first)
    assert (row["_key"], row["event_id"]) == (b"k\xff", "e1")
    assert row["_headers"] == [{"key": "trace", "value": b"\x00"}, {"key": "trace", "value": None}]
    booked = [(row["source"], row["etag"], row["size"], row["units"], row["bronze"]) for row in ledger(lake_settings)]
    assert booked == [(first, "1", 1, 1, 1), (array, "2", 2, 3, 2)]


@pytest.mark.all
def test_bronze_has_a_backlog_until_it_takes_the_last_offsets(
    kafka: KafkaServer, lake_settings: Settings, session_of: SessionOf
) -> None:
    topic = kafka.new_topic(partitions=2)
    send(kafka, topic, [event(number) for number in range(5)])
    own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_TOPIC": topic}
    settings = changed(lake_settings, **own, LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH=2)
    query, bulletin = BronzeQuery(settings, "events", Trigger(available_now=True), "kafka"), Bulletin()
    spark = session_of(settings)
    query.prepare()
    with lease(settings.state.database, query.lease_name) as held:
        query.resume(spark, held)
        looks = [(query.look(spark, bulletin), bulletin.has_backlog(query.name)) for _ in range(4)]
    assert looks == [(True, True), (True, True), (True, False), (False, False)]


def test_what_is_no_record_is_a_dead_letter_with_its_bytes_key_and_headers(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic(max_message_bytes=20 << 20)
    garbage, large = b"\x00\xff{not json", event(1, user_id="x" * (10 << 20))
    send(kafka, topic, [garbage, b"", None, large], key=b"key", headers=[("h", b"v")], message_max_bytes=20 << 20)
    take(topic)
    letters = sorted(rows(lake_settings, "dead_letters.events"), key=lambda row: str(row["_source"]))
    found = [(row["reasons"][0]["code"], row["raw"], row["_key"], row["_headers"]) for row in letters]
    headers = [{"key": "h", "value": b"v"}]
    assert found == [
        ("corrupt_batch", garbage, b"key", headers),
        ("empty_batch", b"", b"key", headers),
        ("tombstone", None, b"key", headers),
    ]
    assert [len(row["user_id"]) for row in rows(lake_settings, "bronze.events")] == [10 << 20]


def test_only_committed_messages_are_read_and_gaps_are_skipped(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(0)])
    send_in_transaction(kafka, topic, [event(1), event(2)], commit=False)
    send_in_transaction(kafka, topic, [event(3)], commit=True)
    take(topic)
    take(topic)
    send_in_transaction(kafka, topic, [event(4)], commit=False)
    take(topic)
    assert [row["event_id"] for row in rows(lake_settings, "bronze.events")] == ["e0", "e3"]
    assert sum(row["size"] for row in ledger(lake_settings)) == 8  # including those without a message


@pytest.mark.all
def test_it_resumes_after_a_lost_checkpoint_with_new_partitions(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic(partitions=2)
    send(kafka, topic, [event(number) for number in range(5)])
    take(topic, LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH=2)
    kafka.add_partitions(topic, 3)
    send(kafka, topic, [event(10)], partition=2)
    shutil.rmtree(local_path(checkpoint_folder(lake_settings, "bronze-events")))
    send(kafka, topic, [event(11)], partition=1)
    take(topic)
    kafka.add_partitions(topic, 4)
    send(kafka, topic, [event(12)], partition=3)
    take(topic)
    found = sorted(row["event_id"] for row in rows(lake_settings, "bronze.events"))
    assert found == sorted([f"e{number}" for number in range(5)] + ["e10", "e11", "e12"])
    assert len({row["micro_batch_id"] for row in ledger(lake_settings)}) >= 5
    assert [row["units"] for row in ledger(lake_settings)] == [2, 2, 1, 1, 1, 1]


def test_what_retention_removed_stops_the_stream_until_it_is_given_up(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic(partitions=2)
    send(kafka, topic, [event(0)])
    take(topic)
    send(kafka, topic, [event(number) for number in range(1, 6)])
    kafka.delete_records(topic, 0, 4)
    with pytest.raises(LakeproofError, match=r"Offsets 1 to 3 of partition 0 (?s:.*)`consumer give-up"):
        take(topic)
    assert units(lake_settings, "bronze") == [(source_name(topic, 0, 0), 0)]
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers)
    lost = lost_offsets(settings, "events")
    assert (topic_of(settings, "events"), lost) == (topic, [(0, 1, 4, 4)])
    give_up_offsets(settings, "events", lost)
    assert lost_offsets(settings, "events") == []
    take(topic)
    assert units(lake_settings, "bronze") == [(source_name(topic, 0, offset), 0) for offset in (0, 4, 5)]
    (letter,) = rows(lake_settings, "dead_letters.events")
    assert (letter["_source"], letter["reasons"][0]["code"]) == (source_name(topic, 0, 1), "absent")
    assert "offsets 1 to 3" in letter["reasons"][0]["detail"]
    kafka.delete_records(topic, 0, 6)
    take(topic)  # messages that were read may be removed
    check_hashes(lake_settings)


@pytest.mark.all
def test_a_topic_that_was_created_again_is_refused(take: Take, kafka: KafkaServer, lake_settings: Settings) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(0)])
    take(topic)
    kafka.delete_topic(topic)
    with pytest.raises(UnavailableError, match=f"has no topic {topic}.*\n.*Create the topic"):
        take(topic)
    kafka.new_topic(name=topic)
    send(kafka, topic, [event(1), event(2), event(3)])
    with pytest.raises(LakeproofError, match=r"deleted and created again(?s:.*)new stream"):
        take(topic)
    assert units(lake_settings, "bronze") == [(source_name(topic, 0, 0), 0)]


def test_brokers_that_do_not_respond_are_named(take: Take, lake_settings: Settings) -> None:
    with pytest.raises(UnavailableError, match=r"Kafka at 127.0.0.1:1 does not respond(?s:.*)Start the brokers"):
        take("any", LAKE_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1", LAKE_KAFKA_TIMEOUT_SECONDS=1)


@pytest.mark.all
def test_a_compacted_topic_has_gaps(take: Take, kafka: KafkaServer, lake_settings: Settings) -> None:
    fast = {"segment_ms": 100, "min_cleanable_dirty_ratio": "0.01", "max_compaction_lag_ms": 100}
    topic = kafka.new_topic(cleanup_policy="compact", **fast)
    for number in range(4):
        send(kafka, topic, [event(number)], key=b"same")
        time.sleep(0.15)  # one segment each
    deadline = time.monotonic() + 120
    # Nothing more is removed from these: the newest of the closed segments, and the open segment.
    while (left := messages(kafka, topic)) != [2, 3]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    take(topic)
    assert units(lake_settings, "bronze") == [(source_name(topic, 0, offset), 0) for offset in left]


@pytest.mark.all
def test_a_micro_batch_is_finished_under_its_contract(
    take: Take, kafka: KafkaServer, lake_settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(0), b"{}"])
    crash_before(monkeypatch)(1)
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        take(topic)
    contracts = tmp_path / "contracts"
    shutil.copytree(lake_settings.contracts, contracts)
    path = contracts / "events.yaml"
    path.write_text(path.read_text().replace("version: 1.1.0", "version: 1.2.0"))
    send(kafka, topic, [event(1), b"{}"])
    take(topic, LAKE_CONTRACTS=contracts)
    found = [(row["_position"], row["_contract_version"]) for row in rows(lake_settings, "bronze.events")]
    letters = [(row["_position"], row["_contract_version"]) for row in rows(lake_settings, "dead_letters.events")]
    assert sorted(found) == sorted(letters) == [(0, "1.1.0"), (0, "1.2.0")]


@pytest.mark.all
@pytest.mark.parametrize("before", ["dead_letters", "bronze", "ledger"])
def test_a_crash_and_a_lost_checkpoint_lose_and_double_nothing(
    take: Take, kafka: KafkaServer, lake_settings: Settings, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    topic = kafka.new_topic(partitions=2)
    send(kafka, topic, [event(0), b"{}"])
    take(topic)
    send(kafka, topic, [event(1), b"{}"])
    crash_before(monkeypatch)(["bronze", "dead_letters", "ledger"].index(before))
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        take(topic)
    shutil.rmtree(local_path(checkpoint_folder(lake_settings, "bronze-events")))
    send(kafka, topic, [event(2), b"{}"], partition=1)
    take(topic)
    good = [source_name(topic, *place) for place in ((0, 0), (0, 2), (1, 0))]
    bad = [source_name(topic, *place) for place in ((0, 1), (0, 3), (1, 1))]
    assert units(lake_settings, "bronze") == [(name, 0) for name in good]
    assert units(lake_settings, "dead_letters") == [(name, 0) for name in bad]
    assert [(row["units"], row["bronze"]) for row in ledger(lake_settings)] == [(2, 1)] * 3
    assert check_hashes(lake_settings) == 6


@pytest.mark.parametrize("times", first_by_default([2, 1000]))
def test_brokers_that_are_away_during_a_run_are_waited_for(
    take: Take, kafka: KafkaServer, lake_settings: Settings, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    topic, check, left = kafka.new_topic(), KafkaSource._check_offsets, times
    send(kafka, topic, [event(0)])

    def check_offsets(source: KafkaSource, start: Offsets, end: Offsets | None = None) -> dict[int, int]:
        nonlocal left
        if end and left:  # a micro-batch is formed
            left -= 1
            raise UnavailableError("Kafka is away.", "Start it.")
        return check(source, start, end)

    monkeypatch.setattr(KafkaSource, "_check_offsets", check_offsets)
    monkeypatch.setattr("consumer.sources.kafka.source._AGAIN_SECONDS", 0.1)
    seconds = itertools.count(0, 10)
    monkeypatch.setattr("consumer.sources.kafka.source.monotonic", lambda: next(seconds))
    if times == 2:
        take(topic)
    else:
        with pytest.raises(UnavailableError, match="Kafka is away"):
            take(topic)
    assert len(units(lake_settings, "bronze")) == (times == 2)


@given(
    begin=st.lists(st.integers(0, 50), min_size=1, max_size=5),
    more=st.lists(st.integers(0, 100), min_size=6, max_size=6),
    most=st.integers(1, 150),
)
def test_a_position_moves_to_the_ends_of_all_partitions(begin: list[int], more: list[int], most: int) -> None:
    at = Offsets.of("t", dict(enumerate(begin))).with_past([(0, 1, 2)])
    ends = {partition: at.next(partition) + count for partition, count in enumerate(more)}  # one was added
    steps = 0
    while (moved := advanced(at, ends, most)) != at:
        waiting = {partition: end - at.next(partition) for partition, end in ends.items()}
        taken = {partition: moved.next(partition) - at.next(partition) for partition in ends}
        assert all(
            0 < taken[partition] <= count if count else not taken[partition] for partition, count in waiting.items()
        )
        assert sum(taken.values()) <= max(most, 0) + len(ends)
        assert moved.past == at.past
        at, steps = moved, steps + 1
        assert steps <= sum(more)
    assert {partition: at.next(partition) for partition in ends} == ends


@given(
    waiting=st.lists(st.integers(0, 1_000), min_size=1, max_size=9).filter(lambda counts: sum(counts) > 0),
    most=st.integers(1, 2_000),
)
def test_a_micro_batch_is_full_while_enough_is_waiting(waiting: list[int], most: int) -> None:
    moved = advanced(Offsets.of("t", {}), dict(enumerate(waiting)), most)
    taken = sum(moved.next(partition) for partition in range(len(waiting)))
    assert min(most, sum(waiting)) <= taken <= most + len(waiting)


def test_a_partition_that_ends_before_the_position_is_not_taken_back() -> None:
    at = Offsets.of("t", {0: 5, 1: 5})
    assert advanced(at, {0: 3, 1: 6}, 100) == Offsets.of("t", {0: 5, 1: 6})


@pytest.fixture
def extents(monkeypatch: pytest.MonkeyPatch) -> dict[int, Extent]:
    """The extents of the topic of `following`, which tests change."""
    extents: dict[int, Extent] = {}
    monkeypatch.setattr(Topic, "identity", lambda _: ("id", sorted(extents)))
    monkeypatch.setattr(Topic, "extents", lambda _, wanted: {each: extents[each] for each in wanted})
    return extents


@pytest.fixture
def following(lake_settings: Settings) -> KafkaSource:
    """A source that waits for more messages of a topic with `extents`; its stream begins at offset 0."""
    ContractLog(lake_settings.state.database).make_current("events", "digest", b"")
    source = KafkaSource(changed(lake_settings, LAKE_KAFKA_TOPIC="incoming"), "events", bronze_query("events"), False)
    source._recorded = Recorded("id", Offsets("incoming"))
    return source


def test_a_partition_that_got_shorter_stops_a_stream_that_waits(
    following: KafkaSource, extents: dict[int, Extent]
) -> None:
    extents |= {0: Extent(0, 100), 1: Extent(0, 10)}
    held = following.next("incoming/", 1)
    assert held is not None
    assert following.next(held.end, 1) is None
    extents[0] = Extent(0, 90)
    with pytest.raises(MessagesLostError, match="Partition 0 of incoming ends at offset 90, but the tables are at 100"):
        following.next(held.end, 1)


def test_what_was_given_up_of_a_former_topic_is_forgotten(
    following: KafkaSource, extents: dict[int, Extent], lake_settings: Settings
) -> None:
    extents[0] = Extent(20, 60)
    database, catalog = lake_settings.state.database, open_catalog(lake_settings)
    adopt(catalog, lake_settings, "events", ContractLog(database))
    for before, known in ((1_000, 0), (50, 50)):
        give_up_before(database, "events", 0, before)
        following.prepare(catalog)
        assert given_up_before(database, "events", 0) == known


def test_only_offsets_that_the_topic_lacks_are_given_up(
    following: KafkaSource, extents: dict[int, Extent], lake_settings: Settings
) -> None:
    extents[0] = Extent(50, 60)
    give_up_before(lake_settings.state.database, "events", 0, 1_000)
    held = following.next("incoming/0=20", 1)
    assert held is not None
    assert [(part.start, part.first, part.end) for part in held.parts] == [(20, 50, 60)]


def test_a_message_of_a_topic_that_was_created_again_is_not_read_for_a_dead_letter(
    kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(0)])
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, LAKE_KAFKA_TOPIC=topic)
    source = KafkaSource(settings, "events", bronze_query("events"), True)
    source._recorded = Recorded(Topic(settings.kafka, topic).identity()[0], Offsets(topic))
    name = source_name(topic, 0, 0)
    assert source.reader.read_again(name, "1", Limits()).value == event(0)
    kafka.delete_topic(topic)
    kafka.new_topic(name=topic)
    send(kafka, topic, [event(1)])
    again = source.reader.read_again(name, "1", Limits())
    assert (again.value, again.failure) == (None, ("absent", "the topic was created again"))


def test_the_start_is_found_once_and_stays(take: Take, kafka: KafkaServer, lake_settings: Settings) -> None:
    topic = kafka.new_topic(partitions=2)
    send(kafka, topic, [event(0)])
    take(topic, LAKE_KAFKA_STARTING_OFFSETS="latest")
    send(kafka, topic, [event(1)])
    send(kafka, topic, [event(2)], partition=1)
    take(topic, LAKE_KAFKA_STARTING_OFFSETS="latest")
    assert sorted(row["event_id"] for row in rows(lake_settings, "bronze.events")) == ["e1", "e2"]


def test_a_stream_has_one_source(
    take: Take, kafka: KafkaServer, lake_settings: Settings, drain_directly: Drain
) -> None:
    topic, other = kafka.new_topic(), kafka.new_topic()
    send(kafka, topic, [event(0)])
    take(topic)
    with pytest.raises(UsageError, match=f"filled from the topic {topic}, not from {other}"):
        take(other)
    with pytest.raises(UsageError, match=f"filled from the topic {topic}, not from files"):
        drain_directly(lake_settings)


@pytest.mark.all
def test_a_login_is_passed_on_and_its_password_is_in_no_file(
    take: Take, kafka: KafkaServer, lake_settings: Settings
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(0)])
    with pytest.raises(UnavailableError, match=r"refused the login of lake(?s:.*)LAKE_KAFKA_SASL_PASSWORD"):
        take(topic, **kafka.login | {"LAKE_KAFKA_SASL_PASSWORD": "wrong", "LAKE_KAFKA_TIMEOUT_SECONDS": 10})
    take(topic, **kafka.login)
    assert units(lake_settings, "bronze") == [(source_name(topic, 0, 0), 0)]
    assert not [
        path
        for path in lake_settings.home.rglob("*")
        if path.is_file() and kafka.password.encode() in path.read_bytes()
    ]


@pytest.mark.all
def test_a_checkpoint_of_another_moment_is_refused(take: Take, kafka: KafkaServer, lake_settings: Settings) -> None:
    topic = kafka.new_topic()
    checkpoint = local_path(checkpoint_folder(lake_settings, "bronze-events"))
    send(kafka, topic, [event(0)])
    take(topic)
    shutil.copytree(checkpoint, checkpoint.with_name("older"))
    send(kafka, topic, [event(1)])
    take(topic)
    shutil.rmtree(checkpoint)
    checkpoint.with_name("older").rename(checkpoint)
    with pytest.raises(
        LakeproofError, match=f"is at {topic}/0=1, but its tables are at {topic}/0=2(?s:.*)reset events"
    ):
        take(topic)
    reset(lake_settings, "events")
    take(topic)
    assert len(units(lake_settings, "bronze")) == 2
