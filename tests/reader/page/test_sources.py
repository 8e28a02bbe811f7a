"""The page for streams of every kind: from a topic, without silver, without rows."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.lakes import changed
from tests.reader.page.lake import Text
from tests.reader.plot.test_device import NOON, reading
from tests.reader.plot.test_plot import PRODUCT, ROWS, lake_with
from tests.reader.verify.replays import TABLES, TopicLake
from tests.servers import KafkaServer

from consumer.iceberg.marker import Committed, Marker, property_of
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import load_contract
from lakeproof.gold.samples_file import load_samples
from lakeproof.kafka.offsets import Offsets
from lakeproof.settings import Settings
from lakeproof.tables.names import samples_tables, silver_tables
from lakeproof.tables.schemas import ensure_samples_tables, ensure_silver_tables, ensure_tables
from reader.connect import connect
from reader.page import state
from reader.page.collect import collect
from reader.page.event_path import event_path
from reader.page.render import render

ROOT = Path(__file__).parents[3]
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


@pytest.mark.all
def test_a_stream_from_a_topic(kafka: KafkaServer, lake_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers)
    lake = TopicLake(settings, kafka)
    like_a_receipt = f"{lake.topic}/0/99"
    other = (EVENT % 3).replace(b'"3"', f'"{like_a_receipt}"'.encode())
    lake.land({0: [EVENT % 1, EVENT % 2, b"garbage"], 1: [other]})
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

    with connect(settings) as session:
        receipts, bronze, ledgers = event_path(settings, session, "events", "2")
        receipt = f'{{"topic":"{lake.topic}","partition":0,"offset":1}}'
        assert event_path(settings, session, "events", receipt) == [receipts, bronze, ledgers]
        _, by_key, _ = event_path(settings, session, "events", like_a_receipt)
        ((letter,), (waits,)) = (event_path(settings, session, "events", f"{lake.topic}/0/{at}") for at in (2, 9))
    assert [row[:3] for row in receipts["rows"]] == [[lake.topic, "0", "1"]]
    assert [row[0] for row in by_key["rows"]] == [f"{lake.topic}/1/{0:019}"]
    assert [row[:2] for row in letter["rows"]] == [["corrupt_batch", "open"]]
    assert (waits["rows"], waits["empty"][:36]) == ([], "Neither in bronze nor a dead letter:")
    assert [row[0] for row in bronze["rows"]] == [f"{lake.topic}/0/{1:019}"]
    assert [row[:4] for row in ledgers["rows"]] == [[f"{lake.topic}/0/{0:019}", "0", "3", "2"]]

    monkeypatch.setattr(state, "_BROKER_SECONDS", 0.3)
    (away,) = collect(changed(settings, LAKE_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1"), []).streams
    notes = " ".join(each.text for each in away.problems)
    assert "The backlog is unknown: Kafka at 127.0.0.1:1 does not respond" in notes
    assert away.wrong == []


def test_data_products_are_plots_and_tables(tmp_path: Path) -> None:
    settings = lake_with(tmp_path, PRODUCT, ROWS)
    ensure_tables(open_catalog(settings), load_contract(settings.contracts, "events"))
    page = collect(settings, ["events"])
    (product,) = page.streams[0].products
    assert product.windows
    assert product.windows.value == len(ROWS)
    assert product.plot
    assert [panel.measure for panel in product.plot.panels] == ["events", "longest", "weight"]
    html = render(page)
    assert html.count('<svg class="chart"') == 3
    assert "\x1b" not in html
    text = Text(html).text
    assert f"{len(ROWS)} SQL windows of activity" in text
    assert "gold.activity, windows of 1 hour" in text


def test_sensors_have_samples_and_anomalies(lake_settings: Settings) -> None:
    settings = changed(lake_settings, LAKE_GOLD=str(ROOT / "gold"))
    catalog, contract = open_catalog(settings), load_contract(settings.contracts, "sensors")
    samples = load_samples(settings.gold, "sensor_samples", lambda _: contract)
    names = samples_tables(samples.name, samples.anomalies)
    ensure_tables(catalog, contract)
    ensure_silver_tables(catalog, contract, silver_tables("sensors"))
    ensure_samples_tables(catalog, samples, names)
    made = [reading(number, 50.0 + number) for number in range(9)]
    found = {"detector": "out_of_range", "detected_at": NOON, "maximum": 60.0}
    for name, rows in (
        ("silver.sensors", [*made, reading(9, 99.0)]),
        (names.samples, made[:2]),
        (names.anomalies, [reading(9, 99.0) | found]),
    ):
        table = catalog.load_table(name)
        schema = pa.schema([field.with_nullable(True) for field in table.schema().as_arrow()])
        table.append(pa.Table.from_pylist(rows, schema))
    page = collect(settings, ["sensors"])
    (product,) = page.streams[0].products
    assert [(each.what, each.value) for each in (product.windows, *product.numbers) if each] == [
        ("samples of sensor_samples", 2),
        ("anomalies of sensor_anomalies", 1),
    ]
    assert [(each["detector"], each["value"]) for each in product.anomalies] == [("out_of_range", "99.0")]
    assert product.plot
    assert {line.label: len(line.times) for line in product.plot.panels[0].lines} == {
        "readings": 10, "samples": 2, "anomalies": 1,
    }  # fmt: skip
    assert "out_of_range" in Text(render(page)).text
