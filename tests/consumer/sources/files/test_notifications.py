"""Events of a bucket find new files without a listing; a sweep finds files without an event."""

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from tests.chaos.processes import Process, wait_until
from tests.consumer.lake import rows
from tests.consumer.test_cli import environment
from tests.lakes import changed
from tests.messages import RefusingConsumer, event, received, send
from tests.pages import blocks
from tests.servers import PATIENCE, KafkaServer, Minio, MinioServer

from consumer.scope import with_landing
from consumer.sources.files.micro_batches import MicroBatches
from consumer.sources.files.notifications import Notifications, created
from lakeproof.errors import UnavailableError
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import VARIABLES, Settings, settings_of
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandingLog, Position
from lakeproof.storage.s3 import s3_client

HOURS = 86_400


class Notifying(MinioServer):
    """MinIO that publishes the events of buckets to a topic."""

    arn = "arn:minio:sqs::LAKE:kafka"

    def __init__(self, folder: Path, kafka: KafkaServer, topic: str) -> None:
        target = {"ENABLE": "on", "BROKERS": kafka.bootstrap_servers, "TOPIC": topic}
        self.target = {f"MINIO_NOTIFY_KAFKA_{name}_LAKE": value for name, value in target.items()}
        self.topic = topic
        super().__init__(folder)

    def options(self) -> dict[str, Any]:
        options = super().options()
        return options | {"env": options["env"] | self.target}


@pytest.fixture(scope="module")
def notifying(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaServer) -> Iterator[Notifying]:
    with Notifying(tmp_path_factory.mktemp("notifying"), kafka, kafka.new_topic(partitions=2)) as server:
        yield server


class Bucket:
    """Bucket whose events are published."""

    def __init__(self, minio: Minio, name: str) -> None:
        self.name, self.client = name, s3_client(minio.settings())
        self.client.create_bucket(Bucket=name)
        self.notify(Notifying.arn)

    def notify(self, *targets: str) -> None:
        """Publish the events to these targets, or to none."""
        queues = [{"QueueArn": each, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]} for each in targets]
        self.client.put_bucket_notification_configuration(
            Bucket=self.name,
            NotificationConfiguration={"QueueConfigurations": queues},  # type: ignore[typeddict-item]
        )

    def put(self, *keys: str) -> None:
        for key in keys:
            self.client.put_object(Bucket=self.name, Key=key, Body=b"[]")


class Stream:
    """The micro-batches of a stream, asked for as by its query."""

    def __init__(self, settings: Settings) -> None:
        log, zone = LandingLog(settings.state.database, "events"), landing_zone(settings, "events")
        self._reader = MicroBatches(settings, "events", zone, log, None)
        self._position = log.base
        self.names: list[str] = []
        self.listings: list[str] = []
        self.was_down = False
        events = zone.storage._client.meta.events  # type: ignore[attr-defined]
        events.register("before-call.s3.ListObjectsV2", lambda **_: self.listings.append("one"))

    def trigger(self) -> None:
        if held := self._reader.next(self._position, 1 << 30):
            self._position = Position.parse(held.end)
            self.names += [part.name for part in held.parts]
        self.was_down |= not self.is_up

    @property
    def is_up(self) -> bool:
        """Whether events are read."""
        assert self._reader._notifications
        return self._reader._notifications.is_up

    def has_swept(self) -> None:
        """Trigger until the first sweep is over, and events are read."""
        self.trigger()
        sweeping = self._reader._sweeping
        assert sweeping is not None
        sweeping.join(PATIENCE)
        self.trigger()

    def until(self, holds: Callable[[], bool]) -> None:
        """Trigger until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, self.names
            self.trigger()
            time.sleep(0.05)

    def check_no_listing(self, land: Callable[[str], None]) -> None:
        """Check that a file is taken without a listing; again if the brokers stalled, since listings find it then."""
        for number in range(10):
            self.until(lambda: self.is_up)
            if self._reader._sweeping:
                self._reader._sweeping.join(PATIENCE)
            before, self.was_down = len(self.listings), False
            name = f"0-{number}.json"  # sorts before all others
            land(name)
            self.until(lambda name=name: name in self.names)  # type: ignore[misc]
            if not self.was_down:
                break
        assert (self.was_down, len(self.listings)) == (False, before)


@pytest.fixture
def bucket(notifying: Notifying, request: pytest.FixtureRequest) -> Bucket:
    return Bucket(notifying.minio, f"test-{abs(hash(request.node.name)):x}"[:40])


@pytest.fixture
def follow(
    lake_settings: Settings, notifying: Notifying, kafka: KafkaServer, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Stream]:
    """Return a function that follows the bucket."""
    for name, value in notifying.minio.environment().items():
        monkeypatch.setenv(name, value)
    environment = notifying.minio.environment()

    def follow(**changes: Any) -> Stream:
        servers = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_NOTIFICATION_TOPIC": notifying.topic}
        settings = changed(lake_settings, **environment, **servers, LAKE_SWEEP_SECONDS=HOURS)
        settings = changed(settings, **changes)
        settings = with_landing(settings, None, f"s3://{bucket.name}/exports", None, ["events"])
        ContractLog(settings.state.database).make_current("events", "any", b"")
        return Stream(settings)

    return follow


@pytest.mark.s3
def test_new_files_are_taken_without_a_listing(
    bucket: Bucket, follow: Callable[..., Stream], notifying: Notifying, kafka: KafkaServer
) -> None:
    bucket.put("exports/m.json")
    stream = follow()
    stream.has_swept()
    assert stream.names == ["m.json"]
    # Keys that sort before all known ones, and keys that are not new files of this stream.
    bucket.put("exports/a b+c%.json", "exports/ü/1.json", "exports/folder/", "exports/x.parquet", "exports/_SUCCESS")
    bucket.put("exports-2/b.json", "c.json")
    bucket.put("exports/deleted.json")
    bucket.client.delete_object(Bucket=bucket.name, Key="exports/deleted.json")
    stream.until(lambda: {"a b+c%25.json", "ü/1.json"} <= {*stream.names})
    events: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while len(events) < 9:  # MinIO publishes each event after it has answered the request
        assert time.monotonic() < deadline, events
        events = [message.value() or b"" for message in received(kafka, notifying.topic)]
    # Each event again, in reverse order, and some invalid ones.
    false = json.dumps({"Records": [record(bucket.name, "exports/never.json"), {"s3": 1}, None]}).encode()
    send(kafka, notifying.topic, [*reversed(events), b"", b"garbage", b"[" * 100_000, b'{"Records": 1}', false])
    bucket.put("exports/last.json")
    stream.until(lambda: "last.json" in stream.names)
    for _ in range(3):
        stream.trigger()
    known = {"m.json", "a b+c%25.json", "ü/1.json", "last.json"}
    # Whether the deleted file still existed when it was looked at is a matter of milliseconds.
    assert sorted(stream.names) == sorted(known | ({"deleted.json"} & {*stream.names}))
    stream.check_no_listing(lambda name: bucket.put(f"exports/{name}"))


@pytest.mark.s3
def test_what_no_event_names_is_found_by_a_sweep(
    bucket: Bucket, follow: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr("consumer.sources.files.micro_batches.monotonic", lambda: now)
    stream = follow()
    stream.has_swept()
    bucket.notify()
    bucket.put("exports/lost.json")
    stream.trigger()
    assert stream.names == []
    now += HOURS  # the next sweep is due
    stream.until(lambda: stream.names == ["lost.json"])
    # A consumer that was stopped finds the files that landed meanwhile, with or without events.
    bucket.notify(Notifying.arn)
    bucket.put("exports/meanwhile.json")
    again = follow()
    again.until(lambda: "meanwhile.json" in again.names)
    assert sorted(again.names) == ["lost.json", "meanwhile.json"]


@pytest.mark.s3
def test_without_the_topic_files_are_listed(bucket: Bucket, follow: Callable[..., Stream]) -> None:
    for changes in ({"LAKE_NOTIFICATION_TOPIC": "no-such-topic"}, {"LAKE_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}):
        stream = follow(**changes, LAKE_KAFKA_TIMEOUT_SECONDS=1)
        stream.trigger()
        key = f"{len(changes)}-{time.monotonic_ns()}.json"
        bucket.put(f"exports/{key}")
        stream.until(lambda key=key, stream=stream: key in stream.names)  # type: ignore[misc]


@pytest.mark.s3
def test_a_sweep_that_fails_is_noticed(bucket: Bucket, follow: Callable[..., Stream]) -> None:
    stream = follow(LAKE_SWEEP_SECONDS=0.5)
    stream.has_swept()
    bucket.client.delete_bucket(Bucket=bucket.name)
    with pytest.raises(UnavailableError, match="NoSuchBucket"):
        stream.until(lambda: False)


@pytest.mark.all
@pytest.mark.s3
def test_brokers_that_are_away_and_return(
    bucket: Bucket, follow: Callable[..., Stream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.sources.files.micro_batches._CONNECT_SECONDS", 0.5)
    with KafkaServer(tmp_path / "kafka") as own:
        topic = own.new_topic()
        stream = follow(LAKE_KAFKA_BOOTSTRAP_SERVERS=own.bootstrap_servers, LAKE_NOTIFICATION_TOPIC=topic)
        stream.has_swept()
        own.stop()
        bucket.put("exports/listed.json")
        stream.until(lambda: "listed.json" in stream.names)
        own.start()

        def land(name: str) -> None:
            bucket.put(f"exports/{name}")
            send(own, topic, [json.dumps({"Records": [record(bucket.name, f"exports/{name}")]}).encode()])

        stream.check_no_listing(land)


@pytest.mark.all
@pytest.mark.s3
@pytest.mark.spark
def test_a_consumer_that_runs_finds_what_is_named(
    bucket: Bucket, lake_settings: Settings, notifying: Notifying, kafka: KafkaServer, tmp_path: Path
) -> None:
    own = {name.replace("AWS_", "LAKE_SOURCE_"): value for name, value in notifying.minio.environment().items()}
    topic = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_NOTIFICATION_TOPIC": notifying.topic}
    variables = environment(lake_settings) | own | topic | {"LAKE_SWEEP_SECONDS": str(HOURS)}
    bucket.client.put_object(Bucket=bucket.name, Key="exports/m.json", Body=event(1))
    command = [sys.executable, "-m", "consumer", "run", "events", "--to", "bronze", "--source"]
    process = Process(
        [*command, f"s3://{bucket.name}/exports", "--trigger", "200 milliseconds"], variables, tmp_path / "log"
    )
    try:
        for number, key in enumerate(("m", "a b+%"), 1):
            if number > 1:
                # The key sorts before all known ones, where the listing of a trigger does not look.
                bucket.client.put_object(Bucket=bucket.name, Key=f"exports/{key}.json", Body=event(number))
            assert wait_until(lambda n=number: len(process.said("micro-batch")) >= n or not process.alive, 180)  # type: ignore[misc]
            assert process.alive, process.text()
        process.signal_itself(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, process.text()
    finally:
        process.end_all()
    assert {row["_source"] for row in rows(lake_settings, "bronze.events")} == {"m.json", "a b+%25.json"}


def record(bucket: str, key: str, what: str = "ObjectCreated:Put") -> dict[str, Any]:
    """Return a record of an S3 event."""
    return {"eventName": what, "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 2}}}


@pytest.mark.s3
def test_the_page_says_how_minio_publishes_events(
    notifying: Notifying, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "docs/existing-bucket.md"
    consumer, server = [
        dict(re.findall(r"^export (\w+)=(\S+)$", block, re.MULTILINE)) for block in blocks(page, "sh")[1:]
    ]
    assert server.keys() == notifying.target.keys()
    assert server["MINIO_NOTIFY_KAFKA_TOPIC_LAKE"] == consumer["LAKE_NOTIFICATION_TOPIC"]
    assert consumer.keys() <= VARIABLES
    for name, value in notifying.minio.environment().items():
        monkeypatch.setenv(name, value)
    client = s3_client(notifying.minio.settings())
    client.create_bucket(Bucket="acme-raw")
    (python,) = blocks(page, "python")
    exec(python, {})
    client.put_object(Bucket="acme-raw", Key="exports/a.json", Body=b"[]")
    found: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while "s3://acme-raw/exports/a.json" not in found and time.monotonic() < deadline:
        found = {uri for message in received(kafka, notifying.topic) for uri in created(message.value() or b"")}
    assert "s3://acme-raw/exports/a.json" in found


class Answer:
    """What a consumer of Kafka has read."""

    def __init__(self, value: bytes | None, error: KafkaError | None) -> None:
        self.value, self.error = lambda: value, lambda: error


def test_a_topic_that_can_no_longer_be_read_is_noticed(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifications = Notifications(lake_settings.kafka, "bucket-events")
    good = Answer(json.dumps({"Records": [record("b", "a.json")]}).encode(), None)
    read: list[Answer] = [good]
    monkeypatch.setattr(notifications, "_consumer", SimpleNamespace(consume=lambda *_: read))
    notifications.is_up = True
    assert (notifications.uris(), notifications.is_up) == (["s3://b/a.json"], True)
    read.append(Answer(None, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    assert (notifications.uris(), notifications.is_up) == (["s3://b/a.json"], False)


def test_the_forms_of_events() -> None:
    s3 = {
        "Records": [record("b", "a+b%2Fc%25.json"), record("b", "gone", "ObjectRemoved:Delete"), record("b", "%C3%BC")]
    }
    expected = ["s3://b/a b/c%.json", "s3://b/ü"]
    assert list(created(json.dumps(s3).encode())) == expected
    assert list(created(json.dumps({"Type": "Notification", "Message": json.dumps(s3)}).encode())) == expected
    bridge = {"detail-type": "Object Created", "detail": {"bucket": {"name": "b"}, "object": {"key": "a+b%.json"}}}
    assert list(created(json.dumps(bridge).encode())) == ["s3://b/a+b%.json"]
    for other in (
        {"Service": "Amazon S3", "Event": "s3:TestEvent"},
        [],
        None,
        {"Records": [record("b", "x") | {"s3": 0}]},
        # Keys that no object can have.
        {"Records": [record("b", key) for key in ("\ud800", "a%00b", "k" * 1_025, "\u00fc" * 513)]},
    ):
        assert list(created(json.dumps(other).encode())) == []


def test_a_user_without_rights_on_groups_can_read_events(kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", RefusingConsumer)
    settings = settings_of({"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}).kafka
    notifications = Notifications(settings, kafka.new_topic())
    assert notifications.connect()
    assert notifications.uris() == []
    assert notifications.is_up
