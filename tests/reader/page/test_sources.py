"""The page of streams of every kind: from a topic, without silver, without rows."""

import pytest
from tests.lakes import changed
from tests.reader.page.lake import Text
from tests.reader.verify.replays import TABLES, TopicLake
from tests.servers import KafkaServer

from consumer.iceberg.marker import Committed, Marker, property_of
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import load_contract
from lakeproof.kafka.offsets import Offsets
from lakeproof.settings import Settings
from lakeproof.tables.schemas import ensure_tables
from reader.page import state
from reader.page.collect import collect
from reader.page.render import render

EVENT = b'{"user_id": "u", "event_id": "%d", "event_timestamp": "2026-01-01T10:00:00Z", "event_type": "page_view"}'


def test_a_stream_without_silver_and_without_rows(lake_settings: Settings) -> None:
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    page = collect(lake_settings, [])
    assert {key: each.value for key, each in page.streams[0].numbers.items()} == {
        "landed": 0, "bronze": 0, "open": 0, "closed": 0,
    }  # fmt: skip
    text = Text(render(page)).text
    assert "All is well: 0 landed units" in text
    assert "Nothing has landed yet." in text


def test_a_stream_from_a_topic(kafka: KafkaServer, lake_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.address)
    lake = TopicLake(settings, kafka)
    lake.land({0: [EVENT % 1, EVENT % 2, b"garbage"], 1: [EVENT % 3]})
    ledger = lake.catalog.load_table(TABLES.ledger)
    marker = Marker("", 0, lake.contract.digest, "", str(Offsets.of(lake.topic, {0: 3, 1: 0})))
    for name in (TABLES.ledger, TABLES.bronze, TABLES.dead_letters):
        with lake.catalog.load_table(name).transaction() as transaction:
            transaction.set_properties({property_of(bronze_query("events")): Committed(marker, 1, 1).as_text()})
    assert ledger.current_snapshot()
    (stream,) = collect(settings, []).streams
    assert (stream.source, stream.what) == (f"the topic {lake.topic}", "message")
    assert (stream.ledger.landed, stream.ledger.bronze, stream.ledger.open) == (4, 3, 1)
    assert [each.behind for each in stream.layers if each.layer == "bronze"] == ["1 waiting"]
    (reasons,) = stream.reasons
    assert reasons.source == f"{lake.topic}/0/{2:019}"

    monkeypatch.setattr(state, "_BROKER_SECONDS", 0.3)
    (away,) = collect(changed(settings, LAKE_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1"), []).streams
    assert (
        "It is not known what waits: Kafka at 127.0.0.1:1 does not respond" in [each.text for each in away.problems][0]
    )
    assert away.wrong == []
