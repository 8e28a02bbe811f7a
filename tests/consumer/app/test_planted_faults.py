"""Whatever a stream comes from, verify finds each fault in each table of each layer."""

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit
from tests.consumer.lake import SessionOf
from tests.messages import send
from tests.servers import KafkaServer, Minio

from consumer.app.application import Query, run_queries
from consumer.app.landing import BronzeQuery
from consumer.app.query import LayerQuery
from consumer.app.trigger import Trigger
from consumer.asked import asked_to_run
from consumer.layers.registry import layers_of
from lakeproof.catalog import open_catalog
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings, settings_of
from lakeproof.storage.s3 import s3_client
from lakeproof.tables.names import silver_tables
from reader.verify import run as run_module
from reader.verify.kafka import run as kafka_run_module
from reader.verify.run import Verification
from reader.verify.streams import verify

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
      - {name: id, logicalType: string, required: true, primaryKey: true, primaryKeyPosition: 1}
      - {name: device, logicalType: string, required: true}
      - {name: at, logicalType: timestamp, required: true}
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


# A batch is a file or a message, and a micro-batch of its own. The horizon is an hour before what came before it.
BATCHES = [
    [
        *(reading(number, f"10:{number}0") for number in range(3)),
        *(reading(10 + number, f"10:{number}1", -1.0) for number in range(3)),
        {"id": 0},
    ],
    [reading(0, "10:00"), reading(1, "10:10", 2.0), reading(2, "10:20", 2.0), reading(3, "14:00"), {"id": 1}],
    [
        *(reading(20 + number, f"11:{number}0") for number in range(3)),
        reading(3, "14:00", 2.0),
        reading(4, "14:10"),
        reading(5, "14:20"),
        {"id": 2},
    ],
]

Findings = dict[str, set[str]]
OF_FILES = {"0.json changed", "1.json lost", "2.json doubled"}
OF_WINDOWS = {"wrong highest", "missing", "several rows of one window"}
# By table: a column and the value that its first row gets; and what verify reports of that row, of one that was
# deleted and of one that was doubled. Faults of one table show in those that are filled from it, so each group is
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
        "ledger": ("bronze", 9, {"bronze: ledger 9", "no row for offsets 1 to 1", "two rows for offsets 2 to 2"}),
        "silver.readings_conflicts": (
            "_winner_position",
            9,
            {"wrong winner", "missing: should be a conflict", "several rows of one record"},
        ),
        "silver.readings_late": (
            "device",
            "other",
            {"differs from its row in bronze", "missing: should be late", "several rows of one record"},
        ),
        "ledger.readings_silver": ("kept", 9, {"wrong counts"}),
    },
}


class Lake:
    """A lake of readings, filled through all layers."""

    def __init__(self, settings: Settings, spark: SparkSession, source: str) -> None:
        self.settings = settings
        self.catalog = open_catalog(settings)
        self.source = source
        self._spark = spark
        now = Trigger(available_now=True)

        queries: list[Query] = [
            BronzeQuery(settings, STREAM, now, source),
            *(LayerQuery(settings, layer, now) for layer in layers_of(asked_to_run(settings, [STREAM], None))),
        ]
        run_queries(settings, queries, lambda: spark, available_now=True)

    def verified(self) -> Verification:
        (found,) = verify(self.settings, STREAM, values=True)
        return found

    @contextmanager
    def planted(self, table: str, column: str, value: object) -> Iterator[None]:
        """Alter a row, delete another one and double a third one; roll back at the end."""
        loaded = self.catalog.load_table(table)
        before = loaded.current_snapshot()
        assert before
        rows = loaded.scan().to_arrow()
        order = ("_micro_batch_id", "micro_batch_id", "window_start", "at")
        rows = rows.sort_by([(name, "ascending") for name in order if name in rows.schema.names])
        altered, deleted, doubled = rows.slice(0, 1), len(rows) // 2, rows.slice(len(rows) - 1)
        assert 0 < deleted < len(rows) - 1
        field = rows.schema.field(column)
        altered = altered.set_column(rows.schema.get_field_index(column), field, pa.array([value], field.type))
        parts = [altered, rows.slice(1, deleted - 1), rows.slice(deleted + 1), doubled]
        faulty = pa.concat_tables(parts).combine_chunks()
        if loaded.format_version == 2:
            loaded.overwrite(faulty)
        else:  # PyIceberg does not write it
            self._spark.createDataFrame(faulty).writeTo(f"lake.{table}").overwrite(lit(True))
        try:
            yield
        finally:
            self._spark.sql(f"CALL lake.system.rollback_to_snapshot('{table}', {before.snapshot_id})")


def found_in_tables(found: Verification) -> Findings:
    """What verify reports, by table of silver and gold."""
    tables: Findings = {}
    for layer in (found.silver, *found.gold):
        assert layer
        for finding in layer.findings:
            tables.setdefault(finding.table, set()).add(finding.what)
    return tables


@pytest.fixture(scope="module", params=["files", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.all]), "kafka"])
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
    if request.param == "kafka":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        topic = kafka.new_topic()
        send(kafka, topic, batches, key=b"k")
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
    if request.param != "kafka":
        zone = landing_zone(settings, STREAM)
        for number, batch in enumerate(batches):
            zone.storage.write_new(f"{zone.root}/{number}.json", batch)
    return Lake(settings, session_of(settings), "kafka" if request.param == "kafka" else "files")


@pytest.mark.parametrize("group", GROUPS)
def test_each_fault_is_found(lake: Lake, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run_module, kafka_run_module):  # for a micro-batch that is being committed
        monkeypatch.setattr(module, "_WAIT_SECONDS", 0)
    with ExitStack() as planted:
        for table, (column, value, _) in GROUPS[group].items():
            planted.enter_context(lake.planted(table if "." in table else f"{table}.{STREAM}", column, value))
        found = lake.verified()
    assert not found.clean
    landed, *tables = GROUPS[group]
    if lake.source == "files":
        assert {f"{each.source} {each.status}" for each in found.off} == OF_FILES
    else:
        details = "\n".join(text for each in found.off for text in each.details)
        assert [text for text in GROUPS[group][landed][2] if text not in details] == []
    of_tables = found_in_tables(found)
    assert {table: of_tables[table] for table in tables} == {table: GROUPS[group][table][2] for table in tables}
    if "ledger.readings_silver" in tables:
        (counts,) = [each for each in found.silver.findings if each.table == "ledger.readings_silver"]
        assert [text.rpartition(": ")[2] for text in counts.examples] == ["ledger 9, recounted 6", "no row", "2 rows"]


def test_a_table_that_was_lost_is_a_problem(lake: Lake) -> None:
    """The last test of each lake: it drops tables."""
    found = lake.verified()
    assert (found.complete, found.silver and found.silver.exists, len(found.gold)) == (True, True, 4)
    (lake.settings.gold / "closed.yaml").unlink()
    for name in ("gold.corrected", "gold.samples"):
        lake.catalog.drop_table(name)
    found = lake.verified()
    assert {each.product: (each.exists, each.clean) for each in found.gold} == {
        "closed": (True, False),
        "corrected": (False, False),
        "samples": (False, False),
        "visits": (True, True),
    }
    assert not found.clean
    for name in astuple(silver_tables(STREAM)):
        lake.catalog.drop_table(name)
    found = lake.verified()
    assert found.silver
    assert (found.clean, found.silver.exists, found.silver.undecided) == (False, False, 16)
    assert [len(each.problems) for each in (found.silver, *found.gold)] == [1, 1, 1, 1]
