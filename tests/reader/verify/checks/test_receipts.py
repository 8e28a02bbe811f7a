"""Receipts checked against tables filled by hand: each outcome, and each fault."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from typer.testing import CliRunner

from consumer.iceberg.marker import Committed, Marker, property_of
from lakeproof.catalog import open_catalog
from lakeproof.errors import UsageError
from lakeproof.history.apply import adopt
from lakeproof.kafka.correlation import correlation_id
from lakeproof.kafka.offsets import Offsets, source_name
from lakeproof.kafka.recorded import Recorded, record_topic
from lakeproof.settings import Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.proofs import ProofKind
from lakeproof.tables.expired import Expired
from lakeproof.tables.names import EXPIRED, HEADERS, silver_tables
from lakeproof.tables.schemas import (
    ensure_attempts,
    ensure_message_columns,
    ensure_removals,
    ensure_silver_tables,
)
from reader.cli import app
from reader.connect import connect
from reader.verify.book.book import Book
from reader.verify.check import Result, Scope, Verification
from reader.verify.checks import receipts as receipts_module
from reader.verify.checks import sources
from reader.verify.checks.receipts import Outcome
from reader.verify.report import ReportFormat, write_report

TOPIC = "raw"
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
KEYED = [{"key": "idempotency-key", "value": b"k"}, {"key": "idempotency-index", "value": b"0"}]
BRONZE, DEAD, KEPT = "bronze.clickstream", "dead_letters.clickstream", "silver.clickstream"
CONFLICTS, LATE, LEDGER = "silver.clickstream_conflicts", "silver.clickstream_late", "ledger.clickstream"


def row(offset: int, number: int, headers: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a row of bronze, in the only partition."""
    told = {header["key"]: header["value"] for header in headers or ()}
    identity = correlation_id(
        told.get("client"), told.get("idempotency-key"), told.get("idempotency-index"), b"%d" % number
    )
    return {
        "id": number,
        "type": "page_view",
        "event": {"timestamp": NOON, "page": "/"},
        "correlation_id": identity,
        "ingestion_timestamp": NOON,
        "_source": source_name(TOPIC, 0, offset),
        "_position": 0,
        "_micro_batch_id": 0,
        "_headers": headers,
    } | changes


def letter(offset: int, code: str = "missing_field") -> dict[str, Any]:
    source = source_name(TOPIC, 0, offset)
    reasons = [{"code": code, "path": "$", "detail": ""}]
    return {"reasons": reasons, "raw": b"{}", "_source": source, "_position": 0, "_ingested_at": NOON}


def attempt(offset: int, outcome: str) -> dict[str, Any]:
    """Return an attempt of the first replay, in micro-batch 1."""
    own = {"_position": 0, "_letter": 1, "letter_reasons": "missing_field", "_attempt": 2, "replay": 1}
    return own | {"_source": source_name(TOPIC, 0, offset), "outcome": outcome, "_micro_batch_id": 1}


REPLAYED = {"source": source_name(TOPIC, 0, 0), "replay": 1, "units": 2, "micro_batch_id": 1, "_ingested_at": NOON}
"""The row of the first replay in the ledger."""


class Lake:
    """A lake of a clickstream with tables filled by the test."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.catalog = open_catalog(settings)
        self.contract = adopt(self.catalog, settings, "clickstream", ContractLog(settings.state.database))

    def of_topic(self, start: int = 0) -> "Lake":
        record_topic(self.catalog, "clickstream", Recorded("id", Offsets.of(TOPIC, {0: start})))
        ensure_message_columns(self.catalog, "clickstream")
        return self

    def with_silver(self, end: int) -> "Lake":
        """Add a silver that has decided all micro-batches before `end`."""
        ensure_silver_tables(self.catalog, self.contract, silver_tables("clickstream"))
        marker = Committed(Marker("", end - 1, self.contract.digest, "0", str(end), contents=""), 0, 1)
        with self.catalog.load_table(KEPT).transaction() as transaction:
            transaction.set_properties({property_of("silver-clickstream"): marker.as_text()})
        return self

    def append(self, name: str, *rows: dict[str, Any]) -> None:
        table = self.catalog.load_table(name)
        schema = schema_to_pyarrow(table.schema())
        columns = set(schema.names)
        own = [{key: value for key, value in each.items() if key in columns} for each in rows]
        table.append(pa.Table.from_pylist(own, schema=schema))

    def consumed(self, end: int, first: int = 0) -> None:
        """Record the offsets from `first` to before `end` in the ledger."""
        source = source_name(TOPIC, 0, first)
        row = {"source": source, "etag": str(end), "units": 0, "micro_batch_id": 0, "_ingested_at": NOON}
        self.append(LEDGER, row)

    def check(self, tmp_path: Path, *offsets: int, topic: str = TOPIC) -> Result:
        path = tmp_path / "receipts.jsonl"
        path.write_text("".join(json.dumps({"topic": topic, "partition": 0, "offset": at}) + "\n" for at in offsets))
        with connect(self.settings) as session:
            book = Book(self.settings, session, "clickstream", ProofKind.ALL)
            book.open(self.catalog, self.contract, of_topic=True)
            (found,) = receipts_module.check(Scope(self.settings, session, "clickstream", receipts=path, opened=book))
            return found


@pytest.fixture
def lake(lake_settings: Settings) -> Lake:
    return Lake(lake_settings)


def outcomes(found: Result) -> dict[Outcome, int]:
    return {outcome: count for outcome, count in found.facts["outcomes"].items() if count}


def faults(found: Result) -> dict[str, list[int]]:
    return {each.what: [int(name.rpartition("/")[2]) for name in each.details] for each in found.findings}


def test_a_field_with_the_name_of_a_variable_does_not_change_correlation_ids() -> None:
    columns = f"'1' AS id, [{{'key': 'client', 'value': 'shop'::BLOB}}] AS {HEADERS}"
    sql = receipts_module._correlation_id("_bronze.id")
    with duckdb.connect() as connection:
        found = {
            connection.execute(f"SELECT {sql} FROM (SELECT {columns}{more}) AS _bronze").fetchall()[0]
            for more in ("", ", 'x' AS header", ", {'key': 'client', 'value': 'y'::BLOB} AS header")
        }
    assert len(found) == 1


def test_each_outcome(lake: Lake, tmp_path: Path) -> None:
    lake.of_topic().with_silver(end=1)
    first, again = row(0, 0), row(1, 0)
    conflict, late, undecided = row(2, 0, type="x"), row(3, 3), row(4, 4, _micro_batch_id=1)
    keyed, other_post = row(5, 0, KEYED), row(6, 0, [{"key": "client", "value": b"shop"}])
    lost_in_silver, twice_in_silver = row(10, 10), row(11, 11)
    lake.append(BRONZE, first, again, conflict, late, undecided, keyed, other_post, lost_in_silver, twice_in_silver)
    lake.append(BRONZE, row(12, 12), row(12, 12), row(13, 13))
    lake.append(KEPT, first, keyed, other_post, row(12, 12), twice_in_silver, row(99, 11), row(98, 13))
    lake.append(CONFLICTS, conflict)
    lake.append(LATE, late)
    lake.append(DEAD, letter(7), letter(9, "absent"), letter(13))
    lake.consumed(15)
    found = lake.check(tmp_path, *range(17), 0)
    assert found.facts["receipts"] == 17
    assert outcomes(found) == {
        Outcome.KEPT: 3,
        Outcome.DUPLICATE: 1,
        Outcome.CONFLICT: 1,
        Outcome.LATE: 1,
        Outcome.UNDECIDED: 1,
        Outcome.DEAD_LETTER: 1,
        Outcome.LOST: 3,
        Outcome.LOST_IN_SILVER: 1,
        Outcome.DOUBLED_IN_SILVER: 1,
        Outcome.DOUBLED: 2,
        Outcome.PENDING: 2,
    }
    assert faults(found) == {
        "lost": [8, 9, 14],
        "lost in silver": [10],
        "doubled in silver": [11],
        "doubled": [12, 13],
    }
    assert (found.clean, found.waiting) == (False, 3)
    # As if retention had removed the late row, and then the conflict.
    for name, expected in ((LATE, {Outcome.LATE: 0, Outcome.EXPIRED: 3}), (CONFLICTS, {Outcome.CONFLICT: 0})):
        table = lake.catalog.load_table(name)
        table.delete()
        with table.transaction() as transaction:
            transaction.set_properties({EXPIRED: Expired(before=1, rows=1).as_text()})
        now = lake.check(tmp_path, *range(17), 0)
        assert expected.items() <= now.facts["outcomes"].items()
    assert now.facts["outcomes"][Outcome.EXPIRED] == 4
    assert "lost in silver" not in faults(now)


@pytest.mark.all
def test_a_post_that_is_sent_again_in_another_order_is_said(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the first post, Kafka acknowledged only the event 7. Sent again, the post began with the event 8."""
    lake.of_topic().with_silver(end=1)
    second = [KEYED[0], {"key": "idempotency-index", "value": b"1"}]
    lake.append(BRONZE, first := row(0, 7, KEYED), other := row(1, 8, KEYED), again := row(2, 7, second))
    lake.append(KEPT, first, again)
    lake.append(CONFLICTS, other)
    lake.consumed(3)
    found = lake.check(tmp_path, 1, 2)
    assert outcomes(found) == {Outcome.KEPT: 1, Outcome.CONFLICT: 1}
    assert found.facts["conflicts"] == [source_name(TOPIC, 0, 1)]
    landed = sources.result_of((), units=3, bronze=3, sampled=3)
    whole = Verification("clickstream", {sources.SECTION: (landed,), receipts_module.SECTION: (found,)})
    write_report([whole], ReportFormat.TABLE, sys.stdout)
    said = capsys.readouterr().out
    assert f"silver has another event with the same key as {source_name(TOPIC, 0, 1)}" in said
    assert "But 1 event with a receipt is not in silver" in " ".join(said.split())
    write_report([whole], ReportFormat.JSON, sys.stdout)
    (stream,) = json.loads(capsys.readouterr().out)["streams"]
    assert stream["receipts"]["conflicts"] == [source_name(TOPIC, 0, 1)]


def test_a_topic_that_the_stream_does_not_come_from(lake: Lake, tmp_path: Path) -> None:
    found = lake.of_topic().check(tmp_path, 3, topic="other")
    assert outcomes(found) == {Outcome.FOREIGN: 1}
    assert [each.details for each in found.findings] == [(source_name("other", 0, 3),)]


@pytest.mark.all
def test_an_event_from_before_the_beginning_is_not_lost(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.of_topic(start=20)
    assert outcomes(lake.check(tmp_path, 9, 20)) == {Outcome.BEFORE: 1, Outcome.PENDING: 1}
    lake.append(BRONZE, row(20, 20), row(5, 5))
    lake.consumed(22, first=20)
    lake.consumed(8, first=5)  # by a batch from the past
    end = Offsets.of(TOPIC, {0: 22}).with_past([(0, 5, 8)])
    marker = Committed(Marker("", 0, lake.contract.digest, "0", str(end), contents=""), 0, 1)
    with lake.catalog.load_table(LEDGER).transaction() as transaction:
        transaction.set_properties({property_of("bronze-clickstream"): marker.as_text()})
    found = lake.check(tmp_path, 0, 4, 5, 6, 8, 19, 20, 21, 22)
    assert outcomes(found) == {Outcome.BEFORE: 4, Outcome.BRONZE: 2, Outcome.LOST: 2, Outcome.PENDING: 1}
    assert faults(found) == {"lost": [6, 21]}
    found = lake.check(tmp_path, 4, 5, 20)
    assert found.clean
    assert "`consumer run … --from … --to …`" in found.warnings[0]
    landed = sources.result_of((), units=3, bronze=3)
    whole = Verification("clickstream", {sources.SECTION: (landed,), receipts_module.SECTION: (found,)})
    write_report([whole], ReportFormat.TABLE, sys.stdout)
    said = " ".join(capsys.readouterr().out.split())
    assert "But 1 event with a receipt is from before the beginning of the stream, and in no table." in said


def test_without_silver_bronze_counts(lake: Lake, tmp_path: Path) -> None:
    lake.of_topic()
    lake.append(BRONZE, row(0, 0))
    assert outcomes(lake.check(tmp_path, 0, 1)) == {Outcome.BRONZE: 1, Outcome.PENDING: 1}


@pytest.mark.all
def test_a_wrong_correlation_id_is_found(lake: Lake, tmp_path: Path) -> None:
    lake.of_topic()
    client = {"key": "client", "value": b"shop"}
    odd = [[client], [client, *KEYED], KEYED[:1], KEYED[1:], [{"key": "client", "value": None}, client], [], None]
    rows = [row(number, -number, headers) for number, headers in enumerate(odd)]
    rows[4]["correlation_id"] = correlation_id(None, None, None, b"-4")
    lake.append(BRONZE, *rows)
    assert lake.check(tmp_path, *range(len(odd))).findings == ()
    lake.append(BRONZE, row(20, 20, correlation_id=rows[0]["correlation_id"]), row(21, 21, correlation_id=None))
    found = lake.check(tmp_path, *range(22))
    assert faults(found) == {"wrong correlation id": [20, 21]}


def test_receipts_of_a_stream_of_files_are_refused(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not come from a topic"):
        lake.check(tmp_path, 0)


def test_receipts_need_the_name_of_a_stream(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["verify", "--receipts", str(tmp_path / "receipts.jsonl")])
    assert isinstance(done.exception, UsageError)
    assert done.exception.message == "Receipts are of one stream."


def test_a_dead_letter_that_a_replay_closed_is_what_its_row_is(lake: Lake, tmp_path: Path) -> None:
    lake.of_topic()
    ensure_attempts(lake.catalog, "clickstream")
    replayed, lost, doubled = row(0, 0, _micro_batch_id=1), letter(1), row(2, 2, _micro_batch_id=1)
    lake.append(BRONZE, replayed, doubled)
    lake.append(DEAD, letter(0), lost, letter(2), letter(3))
    attempts = attempt(0, "closed"), attempt(1, "closed"), attempt(2, "failed"), attempt(3, "failed")
    lake.append(f"{DEAD}_attempts", *attempts)
    lake.consumed(4)
    lake.append(LEDGER, REPLAYED)
    found = lake.check(tmp_path, *range(4))
    assert outcomes(found) == {Outcome.BRONZE: 1, Outcome.LOST: 1, Outcome.DOUBLED: 1, Outcome.DEAD_LETTER: 1}
    assert faults(found) == {"lost": [1], "doubled": [2]}


@pytest.mark.all
def test_a_dead_letter_is_open_until_the_ledger_has_its_replay(lake: Lake, tmp_path: Path) -> None:
    lake.of_topic()
    ensure_attempts(lake.catalog, "clickstream")
    lake.append(DEAD, letter(0), letter(1))
    lake.consumed(2)
    lake.append(f"{DEAD}_attempts", attempt(0, "closed"), attempt(1, "closed"))
    assert outcomes(lake.check(tmp_path, 0, 1)) == {Outcome.DEAD_LETTER: 2}
    lake.append(BRONZE, row(0, 0, _micro_batch_id=1))
    lake.append(DEAD, letter(1) | {"_attempt": 2, "_micro_batch_id": 1})  # the rest of a batch
    assert outcomes(lake.check(tmp_path, 0, 1)) == {Outcome.DEAD_LETTER: 2}
    lake.append(LEDGER, REPLAYED)
    assert outcomes(lake.check(tmp_path, 0, 1)) == {Outcome.BRONZE: 1, Outcome.DEAD_LETTER: 1}


def test_an_erased_event_is_not_lost(lake: Lake, tmp_path: Path) -> None:
    lake.of_topic()
    ensure_removals(lake.catalog, "clickstream")
    lake.append(BRONZE, row(0, 0), row(3, 3))
    removed = {"request": "1", "what": "erased", "_position": 0, "micro_batch_id": 0, "rows": 1, "hash": 0}
    removed |= {"codes": None, "removed_at": NOON}
    lake.append(
        f"{LEDGER}_removals",
        *[
            removed | {"table": table, "source": source_name(TOPIC, 0, at)}
            for table, at in ((BRONZE, 1), (DEAD, 2), (BRONZE, 3))
        ],
    )
    lake.consumed(5)
    found = lake.check(tmp_path, *range(5))
    assert outcomes(found) == {Outcome.BRONZE: 2, Outcome.ERASED: 2, Outcome.LOST: 1}
    assert faults(found) == {"lost": [4]}
