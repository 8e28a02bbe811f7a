"""verify finds each fault in each table of each layer, for each source of a stream."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit
from tests.consumer.direct import run_in_turn
from tests.consumer.lake import SessionOf
from tests.messages import send
from tests.selection import first_by_default, only_with_all
from tests.servers import KafkaServer, Minio

from consumer.layers.registry import layers_of
from consumer.queries.bronze import BronzeQuery
from consumer.queries.layer import LayerQuery
from consumer.queries.trigger import Trigger
from consumer.scope import scope_of_run
from lakeproof.catalog import open_catalog
from lakeproof.kafka.offsets import source_name
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings, settings_of
from lakeproof.state.proofs import ProofKind, ProofOutcome
from lakeproof.storage.s3 import s3_client
from lakeproof.tables.names import silver_tables
from reader.connect import connect
from reader.verify.check import Result, Scope, Verification
from reader.verify.checks.receipts import CHECK
from reader.verify.driver import verify
from reader.verify.tables import accounts

pytestmark = pytest.mark.spark

STREAM = "readings"
CONTRACT = """\
apiVersion: v3.2.0
kind: DataContract
id: readings
name: readings
version: 1.0.0
status: active
customProperties:
  - {property: eventTime, value: at}
  - {property: silverHorizon, value: 1 hour}
schema:
  - name: readings
    logicalType: object
    properties:
      - {name: id, logicalType: string, required: true}
      - {name: device, logicalType: string, required: true, primaryKey: true, primaryKeyPosition: 1}
      - {name: at, logicalType: timestamp, required: true, primaryKey: true, primaryKeyPosition: 2}
      - name: level
        logicalType: number
        physicalType: double
        required: true
        customProperties: [{property: anomalyBelow, value: 0}]
"""
WINDOWS = "silver: readings\nkeys: [device]\nmeasures: {readings: count(*), highest: max(level)}\n"
PRODUCTS = {
    "corrected": "name: corrected\nwindow: {size: 10 minutes}\n" + WINDOWS,
    "closed": "name: closed\nwindow: {size: 10 minutes}\npublish: final\n" + WINDOWS,
    "visits": "name: visits\nwindow: {gap: 5 minutes}\n" + WINDOWS,
    "samples": "name: samples\nkind: samples\nsilver: readings\ndevice: device\nvalue: level\n"
    "window: {size: 10 minutes}\nanomalies: anomalies\n",
}


def reading(number: int, time: str, level: float = 1.0) -> dict[str, object]:
    return {"id": f"r{number}", "device": "d", "at": f"2026-01-01T{time}:00Z", "level": level}


# A batch is a file or a message, and a micro-batch of its own. The horizon is an hour before the earlier batches.
# The batch of one record is a message as the collector sends it, with a receipt.
BATCHES = [
    [
        *(reading(number, f"10:{number}0") for number in range(3)),
        *(reading(10 + number, f"10:{number}1", -1.0) for number in range(3)),
        {"id": 0},
    ],
    [reading(0, "10:00"), reading(1, "10:10", 2.0), reading(2, "10:20", 2.0), reading(3, "14:00"), {"id": 1}],
    [reading(30, "14:05")],
    [
        *(reading(20 + number, f"11:{number}0") for number in range(3)),
        reading(3, "14:00", 2.0),
        reading(4, "14:10"),
        reading(5, "14:20"),
        {"id": 2},
    ],
]

Findings = dict[str, set[str]]
OF_FILES = {"0.json changed", "1.json lost", "3.json doubled"}
OF_FILES_IN_LEDGER = {"0.json changed", "2.json lost", "3.json doubled"}
OF_WINDOWS = {"wrong highest", "missing", "several rows of one window"}
# By table: a column and the new value in the first row; and what verify reports for that row, for a deleted row
# and for a doubled row. Faults of one table show in tables that are filled from it, so each group is
# planted by itself.
GROUPS: dict[str, dict[str, tuple[str, Any, set[str]]]] = {
    "bronze and gold": {
        "bronze": ("level", 9.0, {"level is 9.0 in bronze", "in no table", "no message of their own"}),
        "gold.corrected": ("highest", 9.0, OF_WINDOWS),
        "gold.closed": ("highest", 9.0, OF_WINDOWS),
        "gold.visits": ("highest", 9.0, OF_WINDOWS),
        "gold.samples": ("roles", ["last"], {"wrong roles", "missing", "several rows of one window"}),
        "gold.anomalies": ("minimum", 9.0, {"wrong minimum", "missing", "several rows of one window"}),
    },
    "dead letters and silver": {
        "dead_letters": ("raw", b"9", {"differs from the message", "in no table", "no message of their own"}),
        "silver.readings": (
            "level",
            9.0,
            {"differs from its row in bronze", "missing: should be kept", "several rows of one record"},
        ),
    },
    "ledger and the rest of silver": {
        "ledger": ("bronze", 9, {"bronze: ledger 9", "no row for offsets 2 to 2", "two rows for offsets 3 to 3"}),
        "silver.readings_conflicts": (
            "_winner_position",
            9,
            {"wrong winner", "missing: should be a conflict", "several rows of one record"},
        ),
        "silver.readings_late": (
            "id",
            "other",
            {"differs from its row in bronze", "missing: should be late", "several rows of one record"},
        ),
        "ledger.readings_silver": ("kept", 9, {"wrong counts"}),
    },
}


class Lake:
    """Lake of readings, filled through all layers."""

    def __init__(self, settings: Settings, spark: SparkSession, source: str, topic: str | None) -> None:
        self.settings = settings
        self.topic = topic
        self.catalog = open_catalog(settings)
        self.source = source
        self._spark = spark

    def fill(self) -> None:
        """Take everything that has landed through all layers."""
        now = Trigger(available_now=True)
        layers = layers_of(scope_of_run(self.settings, [STREAM], None))
        queries = [LayerQuery(self.settings, layer, now) for layer in layers]
        run_in_turn(self._spark, self.settings, [BronzeQuery(self.settings, STREAM, now, self.source), *queries])

    def verified(self, kind: ProofKind = ProofKind.ALL) -> Verification:
        (found,) = verify(self.settings, STREAM, values=True, kind=kind)
        return found

    @contextmanager
    def changed(self, table: str, change: Callable[[pa.Table], pa.Table]) -> Iterator[None]:
        """Change the rows of a table; roll back at the end."""
        loaded = self.catalog.load_table(table)
        before = loaded.current_snapshot()
        assert before
        faulty = change(loaded.scan().to_arrow()).combine_chunks()
        if loaded.format_version == 2:
            loaded.overwrite(faulty)
        else:  # PyIceberg does not write this format
            self._spark.createDataFrame(faulty).writeTo(f"lake.{table}").overwrite(lit(True))
        try:
            yield
        finally:
            self._spark.sql(f"CALL lake.system.rollback_to_snapshot('{table}', {before.snapshot_id})")


def faulty(column: str, value: object) -> Callable[[pa.Table], pa.Table]:
    """Return a change that alters a row, deletes another one and doubles a third one."""

    def change(rows: pa.Table) -> pa.Table:
        order = ("_micro_batch_id", "micro_batch_id", "window_start", "at")
        rows = rows.sort_by([(name, "ascending") for name in order if name in rows.schema.names])
        altered, deleted, doubled = rows.slice(0, 1), len(rows) // 2, rows.slice(len(rows) - 1)
        assert 0 < deleted < len(rows) - 1
        field = rows.schema.field(column)
        altered = altered.set_column(rows.schema.get_field_index(column), field, pa.array([value], field.type))
        parts = [altered, rows.slice(1, deleted - 1), rows.slice(deleted + 1), doubled]
        return pa.concat_tables(parts)

    return change


def faults_of(found: Verification) -> str:
    """Return all faults as text."""
    results = [result for results in found.results.values() for result in results]
    return "\n".join(f"{each.place} {each.what} {each.details}" for result in results for each in result.faults)


def found_in_tables(found: Verification) -> Findings:
    """Return the findings of verify by table of silver and gold."""
    tables: Findings = {}
    for result in (*found.of("silver"), *found.of("gold")):
        for finding in result.findings:
            tables.setdefault(finding.place, set()).add(finding.what)
    return tables


@pytest.fixture(
    scope="module",
    params=["files", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.long]), only_with_all("kafka")],
)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, session_of: SessionOf) -> Lake:
    folder = tmp_path_factory.mktemp(request.param)
    files = {f"contracts/{STREAM}": CONTRACT, **{f"gold/{name}": text for name, text in PRODUCTS.items()}}
    for name, text in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    batches = [json.dumps(batch).encode() for batch in BATCHES]
    own: dict[str, object] = {
        "LAKE_HOME": folder / "lake",
        "LAKE_CONTRACTS": folder / "contracts",
        "LAKE_GOLD": folder / "gold",
        "LAKE_SETTLE_SECONDS": 0,
        "LAKE_MAX_FILES_PER_MICRO_BATCH": 1,
        "LAKE_KAFKA_MAX_OFFSETS_PER_MICRO_BATCH": 1,
    }
    topic = None
    if request.param == "kafka":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        topic = kafka.new_topic()
        own |= {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_TOPIC": topic}
        settings = settings_of(own)
    elif request.param == "s3":
        minio: Minio = request.getfixturevalue("minio")
        bucket = f"planted-{uuid.uuid4().hex[:12]}"
        s3_client(minio.settings()).create_bucket(Bucket=bucket)
        own |= {f"LAKE_{name.upper()}": f"s3://{bucket}/{name}" for name in ("landing", "warehouse", "checkpoints")}
        settings = settings_of(own).model_copy(update={"s3": minio.settings()})
    else:
        settings = settings_of(own)

    def land(start: int, end: int) -> None:
        if topic is not None:
            send(request.getfixturevalue("kafka"), topic, batches[start:end], key=b"k")
            return
        zone = landing_zone(settings, STREAM)
        for number in range(start, end):
            zone.storage.write_new(f"{zone.root}/{number}.json", batches[number])

    made = Lake(settings, session_of(settings), "kafka" if topic else "files", topic)
    land(0, 3)
    made.fill()
    found = made.verified(ProofKind.NEW)  # the last batch comes after this proof
    assert (found.complete, found.proof and found.proof.kind) == (True, ProofKind.ALL)
    land(3, 4)
    made.fill()
    return made


@pytest.mark.parametrize("group", first_by_default(GROUPS))
def test_each_fault_is_found(lake: Lake, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_WAIT_SECONDS", 0)  # do not wait for a micro-batch that is being committed
    with ExitStack() as planted:
        for table, (column, value, _) in GROUPS[group].items():
            name = table if "." in table else f"{table}.{STREAM}"
            planted.enter_context(lake.changed(name, faulty(column, value)))
        new = lake.verified(ProofKind.NEW)
        is_ledger = "ledger" in GROUPS[group]  # if the ledger was changed, earlier proofs do not count
        found = new if is_ledger else lake.verified()
    assert not found.clean
    assert new.proof
    assert new.proof.outcome is ProofOutcome.FAILED
    assert (new.proof.kind, new.proof.since) == ((ProofKind.ALL, None) if is_ledger else (ProofKind.NEW, 1))
    told = faults_of(new)
    assert [name for name in GROUPS[group] if name not in told and name != "ledger"] == []
    landed, *tables = GROUPS[group]
    if lake.source == "files":
        expected = OF_FILES_IN_LEDGER if landed == "ledger" else OF_FILES
        assert {f"{each.place} {each.what}" for each in found.off} == expected
    else:
        details = "\n".join(text for each in found.off for text in each.details)
        assert [text for text in GROUPS[group][landed][2] if text not in details] == []
    of_tables = found_in_tables(found)
    assert {table: of_tables[table] for table in tables} == {table: GROUPS[group][table][2] for table in tables}
    if "ledger.readings_silver" in tables:
        (silver,) = found.of("silver")
        (counts,) = [each for each in silver.findings if each.place == "ledger.readings_silver"]
        assert [text.rpartition(": ")[2] for text in counts.details] == ["ledger 9, recounted 6", "no row", "2 rows"]


def without(source: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.filter(pc.field("_source") != source)


def twice(source: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: pa.concat_tables([rows, rows.filter(pc.field("_source") == source)])


@pytest.mark.all
@pytest.mark.parametrize("lake", ["kafka"], indirect=True)
def test_each_fault_of_a_receipt_is_found(lake: Lake, tmp_path: Path) -> None:
    receipts = tmp_path / "receipts.jsonl"
    receipts.write_text(json.dumps({"topic": lake.topic, "partition": 0, "offset": 2}))

    def checked() -> Result:
        """Return the result of the check of receipts, which does not depend on the other checks."""
        with connect(lake.settings) as session:
            (result,) = CHECK.run(Scope(lake.settings, session, STREAM, receipts=receipts))
        return result

    result = checked()
    assert (result.clean, result.facts["receipts"], result.facts["outcomes"]["kept"]) == (True, 1, 1)
    assert lake.topic
    source = source_name(lake.topic, 0, 2)
    for table, change, expected in (
        (f"bronze.{STREAM}", without(source), "lost"),
        (f"bronze.{STREAM}", twice(source), "doubled"),
        (f"silver.{STREAM}", without(source), "lost in silver"),
        (f"silver.{STREAM}", twice(source), "doubled in silver"),
    ):
        with lake.changed(table, change):
            result = checked()
        assert [(each.what, each.details) for each in result.findings] == [(expected, (source,))]


@pytest.mark.all
def test_a_table_that_was_lost_is_a_problem(lake: Lake) -> None:
    """This test is the last one of each lake: it drops tables."""
    found = lake.verified()
    assert found.complete
    assert {section.key: len(results) for section, results in found.results.items()} == {
        "": 1,
        "removals": 0,
        "replays": 0,
        "silver": 1,
        "gold": 4,
        "receipts": 0,
        "proof": 1,
    }
    (lake.settings.gold / "closed.yaml").unlink()
    for name in ("gold.corrected", "gold.samples"):
        lake.catalog.drop_table(name)
    found = lake.verified()
    assert {each.name: (not each.missing, each.clean) for each in found.of("gold")} == {
        "closed": (True, False),
        "corrected": (False, False),
        "samples": (False, False),
        "visits": (True, True),
    }
    assert not found.clean
    for name in astuple(silver_tables(STREAM)):
        lake.catalog.drop_table(name)
    found = lake.verified()
    (silver,) = found.of("silver")
    assert (found.clean, silver.missing, silver.waiting) == (False, f"silver.{STREAM}", 17)
    assert [len(each.problems) for each in (silver, *found.of("gold"))] == [1, 1, 1, 1]
