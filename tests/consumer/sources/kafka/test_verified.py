"""``reader verify`` reads the topic with a client of its own, and finds each planted fault."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import And, EqualTo
from tests.lakes import changed, variables
from tests.messages import event, send, send_in_transaction
from tests.selection import only_with_all
from tests.servers import KafkaServer
from typer.testing import CliRunner

from lakeproof.catalog import open_catalog
from lakeproof.kafka.offsets import source_name
from lakeproof.settings import Settings
from reader.cli import app

pytestmark = pytest.mark.spark

Take = Callable[..., None]
Partitions = dict[str, tuple[str, str]]


class Lake:
    """Lake that was filled from a topic."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self.topic = topic
        self._environment = {name: str(value) for name, value in variables(settings).items()}
        self._catalog = open_catalog(settings)

    def verify(self, *arguments: str) -> tuple[dict[str, Any], Partitions]:
        command = ["verify", "events", "--format", "json", *arguments]
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


@pytest.fixture
def lake(take: Take, kafka: KafkaServer, lake_settings: Settings) -> Lake:
    topic = kafka.new_topic(partitions=2)
    values = [event(0), b"[%b, {}]" % event(1), b"garbage \xff", None, b"[]", event(2)]
    send(kafka, topic, values, key=b"k", headers=[("trace", b"\xff"), ("trace", None)])
    send_in_transaction(kafka, topic, [event(3)], commit=False, partition=1)
    send_in_transaction(kafka, topic, [event(4)], commit=True, partition=1)
    take(topic, LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH=4)
    return Lake(changed(lake_settings, LAKE_KAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers), topic)


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


def test_silver_follows_a_topic(take: Take, kafka: KafkaServer, lake: Lake) -> None:
    send(kafka, lake.topic, [event(0), event(0, user_id="other")])
    take(lake.topic, silver=True)
    stream, faults = lake.verify()
    assert (faults, stream["clean"]) == ({}, True)
    assert stream["silver"]
    assert stream["bronze_rows"] == 6


@pytest.mark.all
def test_rows_that_are_missing_doubled_or_of_no_message(lake: Lake) -> None:
    row = lake.remove("bronze", 1)
    status, told = lake.faults()["0"]
    assert status == "lost"
    assert "1 units (at 1) in the topic are in no table" in told
    lake.restore("bronze", row)
    lake.restore("bronze", row)
    assert lake.faults()["0"][0] == "doubled"
    lake.remove("bronze", 1)
    lake.restore("bronze", row)
    lake.restore("bronze", row, _source=source_name(lake.topic, 1, 0))  # from an aborted transaction
    status, told = lake.faults()["1"]
    assert (status, "1 units (at 0) in the tables have no message of their own" in told) == ("doubled", True)
    assert "0" not in lake.faults()


@pytest.mark.all
def test_letters_and_ledger_that_were_changed(lake: Lake) -> None:
    letter = lake.remove("dead_letters", 2)
    lake.restore("dead_letters", letter, raw=b"other")
    assert lake.faults()["0"] == ("changed", "the dead letter of unit 0 of offset 2 differs from the message")
    lake.remove("dead_letters", 2)
    lake.restore("dead_letters", letter)
    assert lake.faults() == {}
    lake.rewrite_ledger(0, "bronze", 7)
    assert lake.faults()["0"] == (
        "changed", "offsets from 0: the counts of ledger and tables differ: bronze: ledger 7, tables 2"
    )  # fmt: skip
    lake.rewrite_ledger(0, "etag", "1")
    status, told = lake.faults()["0"]
    assert status == "lost"
    assert "the ledger has no row for offsets 1 to 1" in told


@pytest.mark.all
@pytest.mark.parametrize(("table", "offset"), [("bronze", 0), only_with_all("dead_letters", 3)])
def test_a_key_or_a_header_that_is_not_what_was_sent(lake: Lake, table: str, offset: int) -> None:
    told = f"key or headers of 1 units (at {offset}) in the tables differ from those of the message"
    row = lake.remove(table, offset)
    for changes in (
        {"_key": b"other"},
        {"_key": None},
        {"_headers": [{"key": "trace", "value": b"other"}]},
        {"_headers": [{"key": "trace", "value": None}, {"key": "trace", "value": b"\xff"}]},
        {"_headers": []},
    ):
        lake.restore(table, row, **changes)
        assert lake.faults() == {"0": ("changed", told)}, changes
        lake.remove(table, offset)


@pytest.mark.all
def test_a_value_that_is_not_what_was_sent(lake: Lake) -> None:
    row = lake.remove("bronze", 0)
    lake.restore("bronze", row, user_id="other")
    assert lake.faults() == {}  # only --values compares values
    status, told = lake.verify("--values")[1]["0"]
    assert (status, "offset 0: unit 0" in told) == ("changed", True)
