"""The mode `windows` over a real topic equals a model in plain Python, whatever happens."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.modes.conftest import Made, Process, Run, parquet
from tests.consumer.modes.model import event, expected, random_stream
from tests.lakes import changed
from tests.messages import received, send
from tests.servers import KafkaServer

from consumer.modes.checkpoint import Counts
from lakeproof.errors import LakeproofError
from lakeproof.kafka.modes import ModeName
from lakeproof.settings import Settings
from lakeproof.storage.s3 import s3_client

pytestmark = pytest.mark.spark

WATERMARK, WINDOW = timedelta(minutes=10), timedelta(minutes=5)
CRASHING = """
import os, signal, sys
from consumer.modes.checkpoint import Checkpoint
Checkpoint.commit = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from consumer.cli import main
main()
"""


@pytest.mark.parametrize(("seed", "at_once"), [(1, 30), pytest.param(2, 1_000, marks=pytest.mark.long)])
def test_windows_equal_the_model(run: Run, kafka: KafkaServer, tmp_path: Path, seed: int, at_once: int) -> None:
    topic, sink = kafka.new_topic(), kafka.new_topic()
    stream = random_stream(seed, 150)
    send(kafka, topic, stream)
    process = run("windows", topic=topic, kafka=sink, aside=tmp_path / "aside", max_offsets=at_once)
    model = expected(stream, at_once, WATERMARK, WINDOW)
    rows = parquet(tmp_path / "out")
    found = {(row["user_id"], row["window_start"].astimezone(UTC)): summary(row) for row in rows}
    assert len(rows) == len(found)  # each window once
    assert found == model.final
    assert all(row["window_end"] - row["window_start"] == WINDOW for row in rows)
    assert newest(received(kafka, sink)) == model.newest
    numbers = {name: len(getattr(model, name)) for name in ("kept", "duplicates", "late", "bad")}
    assert process.totals == Counts(**numbers)
    aside = {int(row["_source"].rpartition("/")[2]): row["value"] for row in parquet(tmp_path / "aside")}
    assert aside == {number: stream[number] for number in [*model.late, *model.bad]}


@pytest.mark.all
def test_a_process_that_is_killed_between_sink_and_commit_writes_the_same_again(
    run: Run, kafka: KafkaServer, lake_settings: Settings, tmp_path: Path
) -> None:
    topic, sink = kafka.new_topic(), kafka.new_topic()
    stream = [event(1, 0), event(2, 10), event(2, 10), event(3, 3_600), b"bad"]
    send(kafka, topic, stream)
    fields = {"topic": topic, "kafka": sink, "parquet": tmp_path / "out"}
    own = {"LAKE_HOME": lake_settings.home, "LAKE_JARS": lake_settings.spark.jars, "LAKE_SPARK_UI_PORT": "0"}
    own |= {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_CONTRACTS": tmp_path / "none"}
    changes = [part for field, value in fields.items() for part in (f"--{field}", str(value))]
    killed = subprocess.run(
        [sys.executable, "-c", CRASHING, "run", "windows", "--available-now", *changes],
        env=os.environ | {name: str(value) for name, value in own.items()},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert len(before) == 2
    aside = lake_settings.home / "aside" / "windows"
    assert len(parquet(aside)) == 1
    # The mode needs no lake.
    assert not (lake_settings.home / "catalog.db").exists()
    send(kafka, topic, [event(4, 7_200), event(1, 3_590)])
    assert run("windows", **fields).totals == Counts(kept=5, duplicates=1, bad=1)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
    assert len(parquet(aside)) == 1
    messages = received(kafka, sink)
    ids = [dict(message.headers())["lakeproof-id"] for message in messages]
    assert len(ids) == len(set(ids)) + 2  # the two windows of the killed micro-batch
    assert newest(messages) == expected([*stream, event(4, 7_200), event(1, 3_590)], 5, WATERMARK, WINDOW).newest


def test_a_changed_window_is_refused(run: Run, made: Made, kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(1, 0)])
    run("windows", topic=topic)
    with pytest.raises(LakeproofError, match="was made with window 300 seconds, not 3600 seconds") as caught:
        made("windows", topic=topic, window="1 hour").prepare()
    assert "Set window back to 300 seconds" in caught.value.hint


@pytest.mark.all
@pytest.mark.s3
def test_all_folders_can_be_on_s3(spark: Any, kafka: KafkaServer, s3_lake_settings: Settings, bucket: str) -> None:
    topic = kafka.new_topic()
    send(kafka, topic, [event(1, 0), event(2, 3_600), b"bad"])
    fields = {"TOPIC": topic, "PARQUET": f"s3://{bucket}/out", "ASIDE": f"s3://{bucket}/aside"}
    own = {f"LAKE_WINDOWS_{name}": value for name, value in fields.items()}
    settings = changed(s3_lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers, **own)
    settings = settings.model_copy(update={"s3": s3_lake_settings.s3})
    for counts in (Counts(kept=2, bad=1), Counts(kept=3, duplicates=1, bad=1)):
        process = Process(settings, ModeName.WINDOWS)
        process.prepare()
        while process.take(spark):
            pass
        assert process.totals == counts
        process.close()
        send(kafka, topic, [event(2, 3_600), event(3, 3_601)])
    keys = [item["Key"] for item in s3_client(settings.s3).list_objects_v2(Bucket=bucket)["Contents"]]
    assert {key for key in keys if key.startswith(("out/", "aside/"))} == {
        "out/_lakeproof.json",
        "out/windows-0000000000-0000.parquet",
        "aside/_lakeproof.json",
        "aside/aside-0000000000-0000_0000.parquet",
    }
    assert "checkpoints/windows/commits/1.json" in keys


def summary(row: dict[str, Any]) -> tuple[int, Decimal, Decimal, Decimal]:
    return row["event_count"], row["amount_sum"], row["amount_min"], row["amount_max"]


def newest(messages: list[Any]) -> dict[tuple[str, datetime], tuple[int, Decimal, Decimal, Decimal]]:
    """Return the windows that a topic shows: the newest message of each key."""
    found = {}
    for message in messages:
        value = json.loads(message.value(), parse_float=Decimal, parse_int=Decimal)
        assert json.loads(message.key()) == {name: value[name] for name in ("userId", "windowStart")}
        place = value["userId"], datetime.fromisoformat(value["windowStart"])
        found[place] = (int(value["eventCount"]), value["amountSum"], value["amountMin"], value["amountMax"])
    return found
