"""``reader verify`` reads the topic with a client of its own, and finds each planted fault."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import And, EqualTo
from tests.consumer.lake import SessionOf
from tests.consumer.sources.kafka.conftest import take_into
from tests.lakes import changed, put_back, variables
from tests.messages import Headers, event, send, send_in_transaction
from tests.servers import KafkaServer
from typer.testing import CliRunner

from lakeproof.catalog import open_catalog
from lakeproof.kafka.offsets import source_name
from lakeproof.settings import Settings, settings_of
from reader.cli import app
from reader.verify.tables import accounts

pytestmark = pytest.mark.spark

Take = Callable[..., None]
Partitions = dict[str, tuple[str, str]]

ROOT = Path(__file__).parents[4]
HEADERS: Headers = [("trace", b"\xff"), ("trace", None)]
OTHER_LABELS: list[dict[str, object]] = [
    {"_key": b"other"},
    {"_key": None},
    {"_headers": [{"key": "trace", "value": b"other"}]},
    {"_headers": [{"key": "trace", "value": None}, {"key": "trace", "value": b"\xff"}]},
    {"_headers": []},
]
"""Keys and headers other than those of the messages."""


class Lake:
    """Lake that was filled from a topic."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self.settings = settings
        self.topic = topic
        self._environment = {name: str(value) for name, value in variables(settings).items()}
        self._catalog = open_catalog(settings)

    def verify(self, *arguments: str) -> tuple[dict[str, Any], Partitions]:
        command = ["verify", "events", "--format", "json", *arguments]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(accounts, "_WAIT_SECONDS", 0)  # the stream does not run: no rows of the ledger will follow
            done = CliRunner().invoke(app, command, env=self._environment, catch_exceptions=False)
        assert done.exit_code in (0, 1), done.output
        report = json.loads(done.stdout)
        assert report["clean"] == (done.exit_code == 0)
        (stream,) = report["streams"]
        found = {each["source"]: (each["status"], "\n".join(each["details"])) for each in stream["sources"]}
        whole = {name: report[name] for name in ("clean", "complete")}
        return stream | whole, {name.rpartition("/")[2]: told for name, told in found.items()}

    def faults(self) -> Partitions:
        return self.verify()[1]

    def remove(self, table: str, offset: int, partition: int = 0) -> pa.Table:
        """Remove the rows of a message; return them."""
        found = self._catalog.load_table(f"{table}.events")
        rows = EqualTo("_source", source_name(self.topic, partition, offset))
        removed = found.scan(rows).to_arrow()
        assert removed.num_rows
        found.delete(rows)
        return removed

    def restore(self, table: str, rows: pa.Table, **changes: object) -> None:
        """Append rows, with other values in some columns."""
        for name, value in changes.items():
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, rows.schema.field(index), pa.array([value], rows.schema.field(index).type))
        self._catalog.load_table(f"{table}.events").append(rows)

    def rewrite_ledger(self, offset: int, column: str, value: object) -> None:
        """Change a row of the ledger."""
        ledger = self._catalog.load_table("ledger.events")
        rows = And(EqualTo("source", source_name(self.topic, 0, offset)), EqualTo("etag", str(offset + 2)))
        row = ledger.scan(rows).to_arrow()
        assert row.num_rows == 1
        ledger.delete(rows)
        self.restore("ledger", row, **{column: value})


def filled(settings: Settings, session_of: SessionOf, kafka: KafkaServer) -> Lake:
    """Fill a lake from a new topic."""
    topic = kafka.new_topic(partitions=2)
    values = [event(0), b"[%b, {}]" % event(1), b"garbage \xff", None, b"[]", event(2)]
    send(kafka, topic, values, key=b"k", headers=HEADERS)
    send_in_transaction(kafka, topic, [event(3)], commit=False, partition=1)
    send_in_transaction(kafka, topic, [event(4)], commit=True, partition=1)
    take_into(settings, session_of, kafka)(topic, LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH=4)
    return lake_of(settings, kafka, topic)


def lake_of(settings: Settings, kafka: KafkaServer, topic: str) -> Lake:
    return Lake(changed(settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers), topic)


@pytest.fixture
def lake(lake_settings: Settings, session_of: SessionOf, kafka: KafkaServer) -> Lake:
    """Return a lake for a test that changes the topic, too."""
    return filled(lake_settings, session_of, kafka)


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory: pytest.TempPathFactory, session_of: SessionOf, kafka: KafkaServer) -> Lake:
    own = {"LAKE_HOME": tmp_path_factory.mktemp("verified") / "lake", "LAKE_CONTRACTS": ROOT / "contracts"}
    return filled(settings_of(own), session_of, kafka)


@pytest.fixture
def altered(filled_once: Lake) -> Iterator[Lake]:
    """Yield a lake for a test that changes the tables alone, which are put back."""
    with put_back(filled_once.settings):
        yield filled_once


def test_a_clean_topic(lake: Lake, kafka: KafkaServer) -> None:
    stream, faults = lake.verify("--values")
    assert (faults, stream["problems"]) == ({}, [])
    counted = (stream["landed_units"], stream["bronze_rows"], stream["dead_letters"], stream["sampled_rows"])
    assert counted == (7, 4, 3, 4)
    send(kafka, lake.topic, [event(9)])
    assert lake.faults() == {"0": ("pending", "1 offset is not consumed yet")}
    kafka.delete_records(lake.topic, 0, 3)
    told = "3 offsets are gone; tables and ledger agree\n1 offset is not consumed yet"
    stream, faults = lake.verify()
    assert (faults, stream["clean"], stream["complete"]) == ({"0": ("expired", told)}, True, False)


@pytest.mark.all
def test_silver_follows_a_topic(take: Take, kafka: KafkaServer, lake: Lake) -> None:
    send(kafka, lake.topic, [event(0), event(0, user_id="other")])
    take(lake.topic, silver=True)
    stream, faults = lake.verify()
    assert (faults, stream["clean"]) == ({}, True)
    assert stream["silver"]
    assert stream["bronze_rows"] == 6


@pytest.mark.all
def test_rows_that_are_missing_doubled_or_of_no_message(altered: Lake) -> None:
    row = altered.remove("bronze", 1)
    altered.restore("bronze", row, _source=source_name(altered.topic, 1, 0))  # from an aborted transaction
    found = altered.faults()
    assert (found["0"][0], found["1"][0]) == ("lost", "doubled")
    assert "1 units (at 1) in the topic are in no table" in found["0"][1]
    assert "1 units (at 0) in the tables have no message of their own" in found["1"][1]
    for _ in range(2):
        altered.restore("bronze", row)
    assert altered.faults()["0"][0] == "doubled"


@pytest.mark.all
def test_letters_and_ledger_that_were_changed(altered: Lake) -> None:
    altered.restore("dead_letters", altered.remove("dead_letters", 2), raw=b"other")
    altered.rewrite_ledger(0, "bronze", 7)
    status, told = altered.faults()["0"]
    assert (status, told.splitlines()) == (
        "changed",
        [
            "the dead letter of unit 0 of offset 2 differs from the message",
            "offsets from 0: the counts of ledger and tables differ: bronze: ledger 7, tables 2",
        ],
    )
    altered.rewrite_ledger(0, "etag", "1")
    status, told = altered.faults()["0"]
    assert status == "lost"
    assert "the ledger has no row for offsets 1 to 1" in told


@pytest.mark.all
def test_keys_and_headers_that_are_not_what_was_sent(take: Take, kafka: KafkaServer, lake_settings: Settings) -> None:
    topic, count = kafka.new_topic(partitions=2), len(OTHER_LABELS)
    send(kafka, topic, map(event, range(count)), key=b"k", headers=HEADERS)
    send(kafka, topic, [None, b"garbage"] * count, key=b"k", headers=HEADERS, partition=1)
    take(topic)
    lake = lake_of(lake_settings, kafka, topic)
    for partition, table in enumerate(("bronze", "dead_letters")):
        for offset, changes in enumerate(OTHER_LABELS):
            lake.restore(table, lake.remove(table, offset, partition), **changes)
    told = "key or headers of 5 units (at 0, 1, 2, 3, 4) in the tables differ from those of the message"
    assert lake.faults() == {"0": ("changed", told), "1": ("changed", told)}


@pytest.mark.all
def test_a_value_that_is_not_what_was_sent(altered: Lake) -> None:
    altered.restore("bronze", altered.remove("bronze", 0), user_id="other")
    assert altered.faults() == {}  # only --values compares values
    status, told = altered.verify("--values")[1]["0"]
    assert (status, "offset 0: unit 0" in told) == ("changed", True)
