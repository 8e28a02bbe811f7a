"""Replays of the clickstream, from HTTP to topics, and of sensors: everything after bronze gets each record once."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Message
from tests.collector.conftest import own_topics
from tests.collector.running import Collector
from tests.consumer.lake import SessionOf, rows
from tests.consumer.replays import Landing, apply, check_clean, content, drain, replay, verify
from tests.lakes import changed
from tests.messages import received
from tests.servers import KafkaServer

from consumer.layers.bronze.replay import Replay
from lakeproof.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.all]

ROOT = Path(__file__).parents[3]
ENRICHED = frozenset({"ingestion_timestamp"})
"""Columns with the time when an event was validated."""
FINAL = """
name: pages
silver: clickstream
description: How often each page was viewed in an hour.
keys: [event.page]
window:
  size: 1 hour
measures:
  events: count(*)
publish: final
sinks: [table, {{kafka: {topic}}}, parquet]
"""


def two_lakes(settings: Settings, tmp_path: Path, stream: str, right: str, wrong: str) -> tuple[Settings, Settings]:
    """Return a lake with a wrong contract, and a lake with the right one."""
    lakes = []
    for name, text in (("wrong", wrong), ("right", right)):
        made = tmp_path / name
        (made / "contracts").mkdir(parents=True)
        (made / "gold").mkdir()
        (made / "contracts" / f"{stream}.yaml").write_text(text)
        own = {"LAKE_HOME": made / "lake", "LAKE_CONTRACTS": made / "contracts", "LAKE_GOLD": made / "gold"}
        lakes.append(changed(settings, **own))
    return lakes[0], lakes[1]


def with_topics(settings: Settings, name: str) -> Settings:
    """Return a lake that sends silver and dead letters to topics, and final windows to a topic and to files."""
    (settings.gold / "pages.yaml").write_text(FINAL.format(topic=f"{name}.pages"))
    for each in ("page_views", "sessions"):
        (settings.gold / f"{each}.yaml").write_text((ROOT / "gold" / f"{each}.yaml").read_text())
    own = {"LAKE_SILVER_TOPIC": f"{name}.silver", "LAKE_DEAD_LETTER_TOPIC": f"{name}.dead"}
    return changed(settings, **own, LAKE_PUBLISHED=settings.home / "published")


def ids(found: list[Message]) -> list[str]:
    return [dict(each.headers() or [])["lakeproof-id"].decode() for each in found]  # type: ignore[union-attr]


def sent(kafka: KafkaServer, topic: str) -> list[dict[str, Any]]:
    """Return the messages of a topic without the times of processing; check that each message is in it once."""
    found = received(kafka, topic)
    assert Counter(ids(found)).most_common(1)[0][1] == 1
    values = [json.loads(each.value() or b"") for each in found]
    gone = ENRICHED | {"_updated_at"}
    return sorted(({name: value for name, value in each.items() if name not in gone} for each in values), key=str)


def action(number: int, **fields: Any) -> dict[str, Any]:
    """Return an action of a visitor. The wrong contract refuses three of four; both contracts refuse the last of 13."""
    event: dict[str, Any] = {"page": f"/{number % 3}", "visitor": f"v{number % 2}"}
    event["timestamp"] = f"2026-11-01T{number % 24:02}:00:00Z"
    made = {"id": number, "type": "page_view", "event": event}
    match number % 4:
        case 1:
            made["id"] = 2**40 + number
        case 2:
            made["type"] = "search"
        case 3:
            event["position"] = 7
    if number % 13 == 12:
        del event["page"]
    return made | fields


def test_clickstream_from_http_to_topics(
    lake_settings: Settings, session_of: SessionOf, kafka: KafkaServer, tmp_path: Path
) -> None:
    own = own_topics(kafka)
    topic = own["LAKE_COLLECTOR_TOPIC"]
    text = (ROOT / "contracts" / "clickstream.yaml").read_text()
    wrong, right = two_lakes(
        changed(
            lake_settings,
            LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers,
            LAKE_KAFKA_STARTING_OFFSETS="earliest",
            LAKE_KAFKA_TOPIC=topic,
        ),
        tmp_path,
        "clickstream",
        text,
        _clickstream_that_is_wrong(text),
    )
    wrong, right = with_topics(wrong, f"{topic}.wrong"), with_topics(right, f"{topic}.right")
    receipts = tmp_path / "receipts.jsonl"

    def post(collector: Collector, events: list[dict[str, Any]], **headers: str) -> None:
        answer = collector.post(events, **headers)
        assert answer.status == 202
        with receipts.open("a") as file:
            file.write(json.dumps(answer.json) + "\n")

    def outcomes(settings: Settings) -> dict[str, int]:
        found = verify(settings, "clickstream", receipts=receipts)
        check_clean(found)
        (facts,) = [result.facts for result in found.of("receipts")]
        return {name: count for name, count in facts["outcomes"].items() if count}

    with Collector(tmp_path / "collector", own).ready() as collector:
        post(collector, [action(number) for number in range(26)])
        for _ in range(2):  # each event twice, as after a lost answer
            post(collector, [action(number) for number in range(26, 39)], Idempotency_Key="k1")
        for each in (wrong, right):
            drain(each, session_of, "kafka", "clickstream")
        before = outcomes(wrong)
        assert before["dead letter"] == len(rows(wrong, "dead_letters.clickstream")) > 30
        (wrong.contracts / "clickstream.yaml").write_text(text)
        apply(wrong, "clickstream")
        done = replay(wrong, session_of, stream="clickstream")
        assert done.letters == before["dead letter"]
        assert outcomes(wrong) == outcomes(right) == {"kept": 36, "duplicate": 12, "dead letter": 4}
        # More than a week later, windows become final.
        post(collector, [action(100, event={"page": "/", "visitor": "v", "timestamp": "2026-11-10T00:00:00Z"})])
        for each in (wrong, right):
            drain(each, session_of, "kafka", "clickstream")
    for table in ("bronze.clickstream", "silver.clickstream", "gold.page_views", "gold.sessions", "gold.pages"):
        assert content(wrong, table, but=ENRICHED) == content(right, table, but=ENRICHED) != [], table
    for name in ("silver", "pages"):
        assert sent(kafka, f"{topic}.wrong.{name}") == sent(kafka, f"{topic}.right.{name}") != [], name
    assert published(wrong) == published(right) != []
    # A topic of dead letters has each refused unit once; only the table of attempts says that it was closed.
    letters = rows(wrong, "dead_letters.clickstream")
    assert sorted(ids(received(kafka, f"{topic}.wrong.dead"))) == sorted(
        f"{row['_source']}#{row['_position']}#1" for row in letters
    )
    assert len(letters) == before["dead letter"]
    assert outcomes(wrong) == outcomes(right) == {"kept": 37, "duplicate": 12, "dead letter": 4}
    again = replay(wrong, session_of, Replay(), stream="clickstream")
    assert {outcome for _, outcome, _ in again.fates} == {"failed"}
    assert len(sent(kafka, f"{topic}.wrong.silver")) == 37


def _clickstream_that_is_wrong(text: str) -> str:
    """Return the contract with a type that is too narrow, one kind of event only, and without an optional field."""
    number = "      - name: id\n        logicalType: integer\n"
    pattern = "        logicalTypeOptions:\n          pattern: ^[a-z][a-z0-9_]*$\n          maxLength: 64\n"
    before, field, behind = text.partition("          - name: position\n")
    text = before + behind[behind.index("      - name: correlation_id\n") :]
    assert field
    assert all(text.count(each) == 1 for each in (number, pattern, "version: 3.1.0"))
    text = text.replace(number, f"{number}        physicalType: int\n").replace("version: 3.1.0", "version: 3.0.0")
    return text.replace(pattern, "        enum: [{value: page_view}]\n")


def published(settings: Settings) -> list[dict[str, Any]]:
    """Return the rows in the files of final windows."""
    files = sorted((settings.home / "published").rglob("*.parquet"))
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(({name: row[name] for name in row if name != "_updated_at"} for row in found), key=str)


START = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
OF_READINGS = """
      - {{name: seq, logicalType: integer{int}}}
      - {{name: status, logicalType: string, enum: [{status}]}}
{note}"""


def reading(device: str, second: int, value: float = 50.0, **fields: Any) -> bytes:
    """Return the reading of a device that many seconds after the start."""
    at = (START + timedelta(seconds=second)).isoformat()
    return json.dumps({"device_id": device, "sensor_freq": value, "event_time": at} | fields).encode()


REFUSED: list[dict[str, Any]] = [{"seq": 2**40}, {"status": "hot"}, {"note": "hello"}]
"""Fields that only the right contract accepts."""


@pytest.mark.parametrize("source", [pytest.param("files", marks=pytest.mark.long), "kafka"])
def test_sensors_with_samples_anomalies_and_alerts(
    lake_settings: Settings, session_of: SessionOf, tmp_path: Path, request: pytest.FixtureRequest, source: str
) -> None:
    landing = Landing(stream="sensors")
    if source == "kafka":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        landing = Landing(kafka, kafka.new_topic(), "sensors")
    text = (ROOT / "contracts" / "sensors.yaml").read_text().rstrip() + OF_READINGS
    note = "      - {name: note, logicalType: string}\n"
    good = text.format(int="", status="{value: ok}, {value: hot}", note=note)
    bad = text.format(int=", physicalType: int", status="{value: ok}", note="").replace("version: 2.", "version: 1.")
    wrong, right = two_lakes(landing.of(lake_settings), tmp_path, "sensors", good, bad)
    for each, name in ((wrong, "wrong"), (right, "right")):
        product = (ROOT / "gold" / "sensor_samples.yaml").read_text().replace("real_time", "micro_batch")
        product = product.replace("trigger: 10 seconds", "trigger: 1 second")
        product = product.replace("topic: sensors.anomalies", f"topic: {landing.topic}.alerts.{name}")
        (each.gold / "sensor_samples.yaml").write_text(product)
    # At the end, the refused readings of d2 are within the horizon of 30 s, and those of d3 are far behind it.
    readings = [reading("d1", second, 50 + second % 7) for second in range(0, 180, 5)]
    readings += [reading("d2", second, second % 5) for second in range(0, 155, 5)]
    refused = [reading("d2", 155 + 5 * number, **fields) for number, fields in enumerate(REFUSED)]
    refused += [reading("d2", 170 + number, -1.5, **fields) for number, fields in enumerate(REFUSED)]
    late = [reading("d3", number, -2.5, **REFUSED[number % 3]) for number in range(6)]
    landing.land([wrong, right], *(b"[" + b",".join(each) + b"]" for each in (readings, refused, late)))
    for each in (wrong, right):
        drain(each, session_of, landing.source, "sensors")
    assert len(rows(wrong, "dead_letters.sensors")) == 12
    (wrong.contracts / "sensors.yaml").write_text(good)
    apply(wrong, "sensors")
    done = replay(wrong, session_of, stream="sensors")
    assert sum(done.closed.values()) == done.letters == 12
    check_clean(verify(wrong, "sensors"))
    landing.land([wrong, right], *(reading("d1", second) for second in range(180, 400, 10)))
    for each in (wrong, right):
        drain(each, session_of, landing.source, "sensors")
    check_clean(verify(wrong, "sensors"))
    assert content(wrong, "bronze.sensors") == content(right, "bronze.sensors")

    def of_others(settings: Settings, table: str) -> list[str]:
        return [row for row in content(settings, table) if "'d3'" not in row]

    for table in ("silver.sensors", "gold.sensor_samples", "gold.sensor_anomalies"):
        assert of_others(wrong, table) == of_others(right, table) != [], table
        assert not [row for row in rows(wrong, table) if row["device_id"] == "d3"], table
        assert [row for row in rows(right, table) if row["device_id"] == "d3"], table
    assert [row["device_id"] for row in rows(wrong, "silver.sensors_late")] == ["d3"] * 6
    assert rows(right, "silver.sensors_late") == []
    noticed = [row for row in rows(wrong, "gold.sensor_anomalies") if row["detector"] == "out_of_range"]
    assert len(noticed) == len({row["event_time"] for row in noticed}) == 3
    if landing.kafka:
        # Alerts are sent for messages as they arrive; a replay sends none.
        topics = [f"{landing.topic}.alerts.{name}" for name in ("wrong", "right")]
        alerts = [
            [json.loads(each.value() or b"")["id"] for each in received(landing.kafka, topic)] for topic in topics
        ]
        assert alerts[0] == []
        assert len(set(alerts[1])) == len(alerts[1]) == 9
