"""The mode `dedupe` over a real topic: each event once, whatever happens."""

import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from rocksdict import Cache
from tests.consumer.modes.conftest import Made, Process, Run, parquet
from tests.consumer.modes.model import event, expected, random_stream
from tests.lakes import changed
from tests.messages import received, send
from tests.raw_headers import send_raw
from tests.selection import first_by_default, grid
from tests.servers import KafkaServer, free_port

from consumer.layers import buckets
from consumer.modes.checkpoint import Checkpoint, Counts
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.kafka.modes import ModeName
from lakeproof.settings import Settings

pytestmark = pytest.mark.spark

HELLO = b'{"eventId":"1","eventTime":"2024-01-01T00:00:00Z","payload":"hello"}'


def test_an_event_that_is_sent_three_times_is_one_row_and_one_message(
    run: Run, kafka: KafkaServer, tmp_path: Path
) -> None:
    topic, sink = kafka.new_topic(), kafka.new_topic(cleanup_policy="compact")
    send(kafka, topic, [HELLO, HELLO], key=b"k", headers=[("trace", b"\xff"), ("trace", None)])
    run("dedupe", topic=topic, kafka=sink)
    send(kafka, topic, [HELLO])
    assert run("dedupe", topic=topic, kafka=sink).totals == Counts(kept=1, duplicates=2)
    (row,) = parquet(tmp_path / "out")
    source = f"{topic}/0/{0:019}"
    assert (row["event_id"], row["value"].encode(), row["_source"], row["_key"]) == ("1", HELLO, source, b"k")
    assert row["_headers"] == [{"key": "trace", "value": b"\xff"}, {"key": "trace", "value": None}]
    (message,) = received(kafka, sink)
    assert (message.key(), message.value()) == (b"1", HELLO)
    assert message.headers() == [("trace", b"\xff"), ("trace", None), ("lakeproof-id", source.encode())]


@pytest.mark.parametrize("to_topic", first_by_default([False, True]))
def test_each_message_is_in_one_place(run: Run, kafka: KafkaServer, tmp_path: Path, to_topic: bool) -> None:
    topic, aside = kafka.new_topic(), kafka.new_topic()
    stream = [*random_stream(1, 120), None, event(998, 120 * 20), event(999, 120 * 20), b"\xff" * 5_000]
    send(kafka, topic, stream)
    own = {"aside_topic": aside} if to_topic else {"aside": tmp_path / "aside"}
    process = run("dedupe", topic=topic, max_offsets=25, **own)
    model = expected([line or b"" for line in stream[:120]], 25, timedelta(minutes=10))
    rows = parquet(tmp_path / "out")
    offsets = [int(row["_source"].rpartition("/")[2]) for row in rows]
    assert sorted(offsets) == [*model.kept, 121, 122]
    assert [row["value"].encode() for row in rows] == [stream[offset] for offset in offsets]
    if to_topic:
        set_aside = [
            (*(dict(message.headers())[f"lakeproof-{name}"].decode() for name in ("reason", "id")), message.value())
            for message in received(kafka, aside)
        ]
    else:
        set_aside = [(row["reason"], row["_source"], row["value"]) for row in parquet(tmp_path / "aside")]
    found = {int(source.rpartition("/")[2]): (reason, value) for reason, source, value in set_aside}
    assert len(found) == len(set_aside)
    assert all(value == stream[offset] for offset, (_, value) in found.items())
    assert [offset for offset, (reason, _) in sorted(found.items()) if reason == "late"] == model.late
    assert (found[120][0], found[123][0]) == ("tombstone", "malformed_record")
    totals = process.totals
    assert totals.messages == len(stream)
    assert (totals.kept, totals.late + totals.bad) == (len(rows), len(found))


def test_a_message_whose_headers_cannot_be_read_is_set_aside(run: Run, kafka: KafkaServer, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    send_raw(kafka, topic, HELLO, [(b"\xff", b"x")], key=b"k")
    send(kafka, topic, [HELLO])
    totals = run("dedupe", topic=topic, aside=tmp_path / "aside").totals
    assert (totals.kept, totals.bad) == (1, 1)
    (row,) = parquet(tmp_path / "aside")
    found = (row["reason"], row["value"], row["_key"], row["_headers"])
    assert found == ("invalid_headers", HELLO, b"k", None)


@pytest.mark.all
def test_events_with_one_id_are_duplicates_if_their_times_are_not_further_apart_than_the_watermark(
    run: Run, kafka: KafkaServer
) -> None:
    topic, minute = kafka.new_topic(), 60
    send(kafka, topic, [event(1, 0)])
    run("dedupe", topic=topic)
    send(kafka, topic, [event(2, 15 * minute)])
    run("dedupe", topic=topic)
    send(kafka, topic, [event(1, 10 * minute)])  # not late, and ten minutes apart
    assert run("dedupe", topic=topic).totals == Counts(kept=2, duplicates=1)
    send(kafka, topic, [event(3, 20 * minute + 1)])
    run("dedupe", topic=topic)
    send(kafka, topic, [event(1, 11 * minute)])
    assert run("dedupe", topic=topic).totals == Counts(kept=4, duplicates=1)


def test_an_event_of_the_future_makes_no_other_late(run: Run, kafka: KafkaServer, tmp_path: Path) -> None:
    topic = kafka.new_topic()
    now = time.time() - 1_704_067_200  # the model's seconds begin in 2024
    send(kafka, topic, [event(1, 10**10), event(2, now)])
    run("dedupe", topic=topic)
    send(kafka, topic, [event(1, 10**10), event(3, now), event(4, now - 3_600)])
    assert run("dedupe", topic=topic).totals == Counts(kept=3, duplicates=1, late=1)


@pytest.mark.all
@pytest.mark.parametrize("step", ["commit", "write_keys", "tidy"])
def test_a_micro_batch_that_was_interrupted_is_repeated(
    made: Made, spark: SparkSession, kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    topic, sink = kafka.new_topic(), kafka.new_topic()
    send(kafka, topic, [event(1, 0), event(1, 0), b"bad"])
    process = made("dedupe", topic=topic, kafka=sink)
    process.prepare()
    with monkeypatch.context() as patch:
        place = "consumer.modes.layer.write_keys" if step == "write_keys" else f"{CHECKPOINT}.{step}"
        patch.setattr(place, crash)
        with pytest.raises(LakeproofError, match="crashed"):
            process.take(spark)
    # Newer messages are not part of the repeated micro-batch.
    send(kafka, topic, [event(2, 0)])
    process.prepare()
    while process.take(spark):
        pass
    assert process.totals == Counts(kept=2, duplicates=1, bad=1)
    rows = parquet(tmp_path / "out")
    assert sorted(row["event_id"] for row in rows) == ["e1", "e2"]
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2
    ids = [(message.key(), dict(message.headers())["lakeproof-id"]) for message in received(kafka, sink)]
    assert len(set(ids)) == 2
    assert len(ids) == (2 if step == "tidy" else 3)


@pytest.mark.all
@grid(mode=["dedupe", "windows"], lost=["everything", "the newest", "damaged", "a bit flipped"])
def test_the_copy_of_the_ids_may_be_lost_or_old(
    run: Run,
    kafka: KafkaServer,
    lake_settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    lost: str,
) -> None:
    monkeypatch.setattr(buckets, "_CACHE", Cache(1))  # cached blocks would hide damage
    topic = kafka.new_topic()
    send(kafka, topic, [event(1, 0)])
    run(mode, topic=topic).close()
    (folder,) = (lake_settings.home / "modes").iterdir()
    shutil.copytree(folder, tmp_path / "copy")
    send(kafka, topic, [event(2, 0)])
    run(mode, topic=topic).close()
    if lost != "a bit flipped":
        shutil.rmtree(folder)
    if lost in ("the newest", "damaged"):
        shutil.copytree(tmp_path / "copy", folder)
    if lost == "damaged":
        (folder / "CURRENT").write_text("nothing")
    if lost == "a bit flipped":
        for table in folder.glob("*.sst"):
            content = bytearray(table.read_bytes())
            content[10] ^= 1
            table.write_bytes(content)
    send(kafka, topic, [event(1, 0), event(2, 0), event(3, 0)])
    assert run(mode, topic=topic).totals == Counts(kept=3, duplicates=2)


def test_a_changed_key_is_refused_and_a_changed_sink_is_not(run: Run, made: Made, kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(1, 0)])
    run("dedupe", topic=topic)
    for field, value in {"event_id": "userId", "watermark": "1 hour", "topic": kafka.new_topic()}.items():
        with pytest.raises(LakeproofError, match=f"was made with {field}") as caught:
            made("dedupe", **{"topic": topic, field: value}).prepare()
        assert "Set" in caught.value.hint
    made("dedupe", topic=topic, kafka=kafka.new_topic(), aside_topic=kafka.new_topic()).prepare()


def test_sinks_of_another_checkpoint_and_older_checkpoints_are_refused(
    run: Run, made: Made, kafka: KafkaServer, tmp_path: Path
) -> None:
    topic, checkpoint = kafka.new_topic(), tmp_path / "checkpoint"
    send(kafka, topic, [event(1, 0)])
    run("dedupe", topic=topic, checkpoint=checkpoint)
    shutil.copytree(checkpoint, tmp_path / "older")
    send(kafka, topic, [event(2, 0)])
    run("dedupe", topic=topic, checkpoint=checkpoint)
    with pytest.raises(LakeproofError, match="has the files of another checkpoint"):
        made("dedupe", topic=topic, checkpoint=tmp_path / "new").prepare()
    assert not (tmp_path / "new" / "mode.json").exists()  # a refused first run leaves nothing
    with pytest.raises(LakeproofError, match=r"has files of micro-batch 1, but the checkpoint is at micro-batch 0"):
        made("dedupe", topic=topic, checkpoint=tmp_path / "older").prepare()
    (checkpoint / "mode.json").unlink()
    with pytest.raises(LakeproofError, match="missing or damaged"):
        made("dedupe", topic=topic, checkpoint=checkpoint).prepare()


def test_of_two_consumers_one_gets_an_error(
    made: Made, spark: SparkSession, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(1, 0)])
    process = made("dedupe", topic=topic)
    process.prepare()
    begin = Checkpoint.begin

    def begin_twice(self: Checkpoint, plan: Any) -> None:
        begin(self, plan)  # by the other process
        begin(self, plan)

    monkeypatch.setattr(CHECKPOINT + ".begin", begin_twice)
    with pytest.raises(LakeproofError, match="Another consumer uses the checkpoint"):
        process.take(spark)


@pytest.mark.all
def test_what_is_missing_is_named(made: Made, kafka: KafkaServer, lake_settings: Settings) -> None:
    with pytest.raises(UnavailableError, match="has no topic missing"):
        made("dedupe", topic="missing", kafka="unused").prepare()
    away = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}", "LAKE_KAFKA_TIMEOUT_SECONDS": 1}
    settings = changed(lake_settings, LAKE_DEDUPE_KAFKA="k", **away)
    with pytest.raises(UnavailableError, match="does not respond"):
        Process(settings, ModeName.DEDUPE).prepare()


def test_topics_of_sinks_are_created(made: Made, kafka: KafkaServer) -> None:
    topic, sinks = kafka.new_topic(), {"kafka": "sink-of-dedupe", "aside_topic": "aside-of-dedupe"}
    made("dedupe", topic=topic, **sinks).prepare()
    created = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=10).topics
    assert {*sinks.values()} <= created.keys()
    assert "unused" not in created
    made("dedupe", topic=topic, **sinks).prepare()


def test_messages_that_are_lost_and_a_topic_that_was_created_again_stop_it(
    run: Run, made: Made, spark: SparkSession, kafka: KafkaServer
) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(1, 0)])
    run("dedupe", topic=topic)
    send(kafka, topic, [event(2, 0), event(3, 0)])
    kafka.delete_records(topic, 0, 2)
    process = made("dedupe", topic=topic)
    process.prepare()
    with pytest.raises(LakeproofError, match=r"Offsets 1 to 1 of partition 0") as caught:
        process.take(spark)
    assert "keep messages for longer" in caught.value.hint
    kafka.delete_topic(topic)
    kafka.new_topic(name=topic)
    with pytest.raises(LakeproofError, match="deleted and created again"):
        made("dedupe", topic=topic).prepare()


@pytest.mark.all
def test_a_broker_that_is_away_is_waited_for_as_long_as_the_settings_say(
    spark: SparkSession, kafka: KafkaServer, lake_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakeproof.kafka.topic._MOST_REQUEST_SECONDS", 5.0)  # of ten
    topic = kafka.new_topic()

    def process(name: str, **changes: Any) -> Process:
        places = {f"LAKE_DEDUPE_{field}": tmp_path / name / field for field in ("PARQUET", "ASIDE", "CHECKPOINT")}
        own = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_DEDUPE_TOPIC": topic}
        settings = changed(lake_settings, **own, **places, **changes)
        made = Process(settings, ModeName.DEDUPE, to_the_end=False)
        made.prepare()
        assert not made.take(spark)
        return made

    # The broker may take minutes to start, and seconds to answer.
    patient = process("patient", LAKE_KAFKA_TIMEOUT_SECONDS=600)
    impatient = process("impatient", LAKE_KAFKA_TIMEOUT_SECONDS=5)
    kafka.kill()
    try:
        assert not patient.take(spark)
        with pytest.raises(UnavailableError, match="does not respond"):
            wait_for_a_micro_batch(impatient, spark)
    finally:
        kafka.start()
    send(kafka, topic, [event(1, 0)])
    wait_for_a_micro_batch(patient, spark)
    assert patient.totals == Counts(kept=1)
    patient.close()
    impatient.close()


CHECKPOINT = "consumer.modes.checkpoint.Checkpoint"


def wait_for_a_micro_batch(process: Process, spark: SparkSession) -> None:
    while not process.take(spark):
        pass


def crash(*_: Any, **__: Any) -> None:
    raise LakeproofError("crashed, as asked")
