"""A batch over the past of a topic, in turn with the stream: each message lands once, whatever crashes."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.consumer.crashes import crash_before
from tests.consumer.lake import rows
from tests.consumer.sources.kafka.test_source import units
from tests.consumer.sources.kafka.test_verified import Lake
from tests.hashes import check_hashes
from tests.lakes import changed
from tests.messages import event
from tests.selection import grid
from tests.servers import KafkaServer

from consumer.app.repair import give_up_offsets, lost_offsets
from consumer.scope import Period
from lakeproof.checkpoint import bronze_query, checkpoint_folder
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.kafka.offsets import source_name
from lakeproof.settings import Settings
from lakeproof.state.lease import LeaseHeldError, lease
from lakeproof.storage.local import local_path

pytestmark = pytest.mark.spark

Take = Callable[..., None]
BEGAN = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=1)
"""Yesterday, since the broker removes messages whose times are older than a week."""
START = {"LAKE_KAFKA_STARTING_OFFSETS": '{"0": 6, "1": 1}'}


def minutes(since: float, until: float) -> Period:
    return Period(BEGAN + timedelta(minutes=since), BEGAN + timedelta(minutes=until))


def send_at(kafka: KafkaServer, topic: str, numbers: Iterable[int], partition: int = 0) -> None:
    """Append events, each landed at the minute of its number; multiples of 4 are not events."""
    # Idempotent, as `send` is: a client whose answer is late sends the messages again.
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    for number in numbers:
        at = int((BEGAN + timedelta(minutes=number)).timestamp() * 1000)
        value = event(number) if number % 4 else b"garbage"
        producer.produce(topic, value=value, partition=partition, timestamp=at)
    assert producer.flush(30) == 0


@pytest.fixture
def topic(kafka: KafkaServer) -> str:
    """Partition 0 has the minutes 0 to 9, and the stream begins at 6; partition 1 has one message before that."""
    name = kafka.new_topic(partitions=2)
    send_at(kafka, name, range(10))
    send_at(kafka, name, [3], partition=1)
    return name


def landed(settings: Settings, topic: str, partition: int = 0) -> list[int]:
    """Return the offsets in both tables, with repetitions."""
    prefix = f"{topic}/{partition}/"
    found = [name for table in ("bronze", "dead_letters") for name, _ in units(settings, table)]
    return sorted(int(name.removeprefix(prefix)) for name in found if name.startswith(prefix))


@pytest.fixture
def verified(kafka: KafkaServer, lake_settings: Settings, topic: str) -> Callable[[], dict[str, tuple[str, str]]]:
    def verify() -> dict[str, tuple[str, str]]:
        return Lake(changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers), topic).faults()

    return verify


@pytest.mark.all
def test_the_past_is_landed_once_in_turns_with_the_stream(
    take: Take, kafka: KafkaServer, lake_settings: Settings, topic: str, verified: Callable[[], object]
) -> None:
    take(topic, silver=True, **START)
    assert landed(lake_settings, topic) == [6, 7, 8, 9]
    # 6 and 7 are in the tables already. The batch takes two micro-batches.
    take(topic, silver=True, past=minutes(2, 8), LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH=3)
    assert landed(lake_settings, topic) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert landed(lake_settings, topic, partition=1) == [0]
    assert verified() == {}
    booked = {row["source"]: (row["etag"], row["checkpoint_id"]) for row in rows(lake_settings, "ledger.events")}
    assert booked[source_name(topic, 0, 2)] == ("5", "past")
    assert booked[source_name(topic, 0, 5)] == ("6", "past")
    numbers = sorted({row["micro_batch_id"] for row in rows(lake_settings, "ledger.events")})
    assert numbers == [0, 1, 2]
    # The same period again, then a longer one; then the stream continues.
    take(topic, silver=True, past=minutes(2, 8))
    take(topic, silver=True, past=minutes(-60, 4))
    assert landed(lake_settings, topic) == [*range(10)]
    send_at(kafka, topic, [10, 11])
    take(topic, silver=True, past=minutes(0, 12))
    assert landed(lake_settings, topic) == [*range(10)], "what is behind the stream's position is the stream's"
    take(topic, silver=True)
    assert landed(lake_settings, topic) == [*range(12)]
    assert verified() == {}
    kept = sorted(row["event_id"] for row in rows(lake_settings, "silver.events"))
    assert kept == sorted(f"e{number}" for number in range(12) if number % 4)


@grid(before=["bronze", "dead_letters", "ledger"], then=["batch", "stream"])
def test_a_batch_that_crashed_is_finished_by_whatever_runs_next(
    take: Take,
    lake_settings: Settings,
    topic: str,
    verified: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    then: str,
) -> None:
    take(topic, **START)
    crash_before(monkeypatch)(["bronze", "dead_letters", "ledger"].index(before))
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        take(topic, past=minutes(2, 6))
    if then == "stream":
        take(topic)
        # A batch in bronze was finished; otherwise, none was begun.
        assert landed(lake_settings, topic) == [*range(6 if before == "bronze" else 2, 10)]
        assert verified() == {}
    take(topic, past=minutes(2, 6))
    assert landed(lake_settings, topic) == [*range(2, 10)]
    assert verified() == {}
    check_hashes(lake_settings)


@pytest.mark.all
def test_what_retention_removed_of_a_batch_that_was_killed_is_given_up(
    take: Take, kafka: KafkaServer, lake_settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(topic, **START)
    crash_before(monkeypatch)(2)
    with pytest.raises(LakeproofError, match="crashed, as asked"):
        take(topic, past=minutes(2, 6))
    kafka.delete_records(topic, 0, 4)
    own = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, LAKE_KAFKA_TOPIC=topic)
    for period in (None, minutes(2, 6)):
        with pytest.raises(LakeproofError, match=r"Offsets 2 to 3 of partition 0 .* were removed") as caught:
            take(topic, past=period)
        assert "consumer give-up" in caught.value.hint
    assert lost_offsets(own, "events") == [(0, 2, 4, 4)]
    give_up_offsets(own, "events", lost_offsets(own, "events"))
    assert lost_offsets(own, "events") == []
    take(topic)
    take(topic, past=minutes(2, 6))
    assert [row["event_id"] for row in rows(lake_settings, "bronze.events")].count("e5") == 1
    ledger = {(row["source"], row["etag"]) for row in rows(lake_settings, "ledger.events")}
    assert (source_name(topic, 0, 2), "6") in ledger
    check_hashes(lake_settings)


@pytest.mark.all
def test_what_spark_repeats_is_not_landed_again_after_a_batch(take: Take, lake_settings: Settings, topic: str) -> None:
    """The stream was killed after its tables had the micro-batch, but before Spark recorded it. Then a batch ran."""
    take(topic, **START)
    folder = local_path(checkpoint_folder(lake_settings, bronze_query("events"))) / "commits"
    newest = max((path for path in folder.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    remove(newest)
    take(topic, past=minutes(2, 6))
    take(topic)
    assert landed(lake_settings, topic) == [*range(2, 10)]


def remove(path: Path) -> None:
    path.unlink()
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def test_a_batch_waits_for_no_other_consumer(take: Take, lake_settings: Settings, topic: str) -> None:
    take(topic, **START)
    with lease(lake_settings.state.database, "events"), pytest.raises(LeaseHeldError):
        take(topic, past=minutes(2, 6))
    assert landed(lake_settings, topic) == [*range(6, 10)]


def test_a_stream_that_was_never_read_has_no_past(take: Take, lake_settings: Settings, topic: str) -> None:
    with pytest.raises(UsageError, match="has not been read from a topic yet") as caught:
        take(topic, past=minutes(2, 6))
    assert "--data-source kafka" in caught.value.hint


@pytest.mark.all
def test_a_hole_in_the_past_is_found(
    take: Take,
    lake_settings: Settings,
    topic: str,
    verified: Callable[[], dict[str, tuple[str, str]]],
    kafka: KafkaServer,
) -> None:
    take(topic, **START)
    take(topic, past=minutes(1, 4))
    lake = Lake(changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers), topic)
    removed = lake.remove("bronze", 2)
    status, told = verified()["0"]
    assert (status, "1 units (at 2) in the topic are in no table" in told) == ("lost", True)
    lake.restore("bronze", removed)
    assert verified() == {}
    lake.restore("bronze", removed)
    assert verified()["0"][0] == "doubled"
