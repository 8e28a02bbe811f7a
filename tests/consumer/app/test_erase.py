"""``consumer erase``: a person is gone from every file, and all the rest is as if they had never landed."""

import gzip
import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.consumer.direct import drain_directly
from tests.consumer.lake import SessionOf
from tests.consumer.replays import Landing, check_clean, content, drain, verify
from tests.lakes import changed
from tests.servers import KafkaServer

from consumer.app.erase import Erased, erase
from consumer.asked import asked_to_run
from consumer.erasure.condition import read_condition
from consumer.layers.base import take
from consumer.layers.registry import layers_of
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings, settings_of
from lakeproof.state.lease import lease
from lakeproof.state.proofs import Kind
from reader.verify.check import Status

pytestmark = pytest.mark.spark

STREAM = "visits"
PERSON = "wanda-4711-ü"
WHERE = f"user_id = '{PERSON}'"
_CONTRACT = """\
apiVersion: v3.2.0
kind: DataContract
id: visits
version: 1.0.0
status: active
customProperties:
  - {property: eventTime, value: at}
  - {property: silverHorizon, value: 1 hour}
  - {property: driftPolicy, value: rescue}
schema:
  - name: visits
    properties:
      - {name: id, logicalType: string, required: true, primaryKey: true}
      - {name: user_id, logicalType: string, required: true}
      - {name: at, logicalType: timestamp, required: true}
      - {name: amount, logicalType: integer}
"""
_PRODUCT = """\
name: spent
silver: visits
description: What was spent.
keys: [user_id]
window:
  size: 1 hour
measures:
  visits: count(*)
  amount: sum(amount)
"""
_AT = {"_micro_batch_id", "_landed_at", "_ingested_at", "_decided_at", "_updated_at"}
TABLES = ("bronze.visits", "dead_letters.visits", "silver.visits", "silver.visits_conflicts", "silver.visits_late")


def visit(number: int, user: str = "karl", at: str = "06:00", **fields: Any) -> bytes:
    whole = {"id": f"v{number}", "user_id": user, "at": f"2026-11-21T{at}:00Z", "amount": number} | fields
    return json.dumps(whole).encode()  # with ü escaped


def batch(*records: bytes) -> bytes:
    return b"[" + b", ".join(records) + b"]"


# What landed, in two runs: of others, and of the person, who comes last in each batch, so that positions are the same.
_LATE = visit(90, at="01:00")
FIRST = [
    ([visit(1), visit(2, "lisa")], [visit(10, PERSON, "06:10"), visit(11, PERSON, "09:00")]),
    ([visit(3), visit(3, amount=30)], [visit(12, PERSON), visit(12, PERSON, amount=5)]),  # conflicts
    ([visit(4), visit(5, at="not a time")], [visit(13, PERSON, amount="much"), visit(14, "lisa", friend=PERSON)]),
    ([visit(6), visit(6)], [visit(15, PERSON, "no time"), visit(16, PERSON), visit(16, PERSON)]),
]
SECOND = [([visit(7, at="08:30"), _LATE], [visit(17, PERSON, "01:00")]), ([visit(8, at="07:30")], [])]
CUT = batch(visit(20), visit(21, PERSON))[:-9]


@dataclass
class Lakes:
    """A lake that has the person, and one that never had them."""

    settings: Settings
    control: Settings
    landing: Landing
    session_of: SessionOf

    def fill(self) -> None:
        for number, run in enumerate((FIRST, SECOND)):
            for settings, with_person in ((self.settings, True), (self.control, False)):
                whole = [batch(*others, *(person if with_person else ())) for others, person in run]
                landing = self.landing if with_person else self._of_control
                more = [CUT, gzip.compress(CUT)] if with_person and not number else []
                landing.land([settings], *whole, *(more if landing.kafka else more[:1]))
                self.drain(settings, landing)

    def __post_init__(self) -> None:
        topic = self.landing.kafka.new_topic() if self.landing.kafka else ""
        self._of_control = Landing(self.landing.kafka, topic, STREAM)

    def drain(self, settings: Settings, landing: Landing | None = None) -> None:
        """Take what has landed through all layers."""
        landing = landing or self.landing
        settings = landing.of(settings)
        if landing.kafka:
            drain(settings, self.session_of, landing.source, STREAM)
            return
        spark = self.session_of(settings)
        drain_directly(spark, changed(settings, LAKE_SETTLE_SECONDS=0), STREAM)
        for layer in layers_of(asked_to_run(settings, [STREAM], None)):
            with lease(settings.state.database, layer.lease_name) as held, closing(layer):
                layer.prepare(open_catalog(settings))
                layer.open(spark)
                while take(layer, spark, held):
                    pass

    def erase(self, where: str = WHERE, **options: Any) -> Erased:
        settings = self.landing.of(self.settings)
        condition = read_condition(where, load_contract(settings.contracts, STREAM))
        return erase(settings, STREAM, condition, lambda: self.session_of(settings), **options)


def lakes_of(folder: Path, session_of: SessionOf, kafka: KafkaServer | None) -> Lakes:
    made = []
    for name in ("lake", "control"):
        settings = settings_of(
            {
                "LAKE_HOME": folder / name,
                "LAKE_CONTRACTS": folder / "contracts",
                "LAKE_GOLD": folder / "gold",
                "LAKE_ERASURE_KEY": "a key of the operator",
            }
        )
        made.append(settings)
    made[0].contracts.mkdir()
    made[0].gold.mkdir()
    (made[0].contracts / f"{STREAM}.yaml").write_text(_CONTRACT)
    (made[0].gold / "spent.yaml").write_text(_PRODUCT)
    landing = Landing(kafka, kafka.new_topic() if kafka else "", STREAM)
    return Lakes(made[0], made[1], landing, session_of)


def traces(settings: Settings) -> list[str]:
    """Files of a lake that have the person."""
    found = []
    for path in settings.home.rglob("*"):
        if not path.is_file():
            continue
        raw = path.read_bytes()
        if raw.startswith(b"PAR1"):
            raw = json.dumps(pq.read_table(path).to_pylist(), default=str, ensure_ascii=False).encode()
        text = raw.decode("utf-8", "replace")
        if any(each in text for each in (PERSON, "wanda-4711", "wanda")):
            found.append(str(path.relative_to(settings.home)))
    return found


@pytest.fixture(scope="module", params=["files", "kafka"])
def erased(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, session_of: SessionOf
) -> tuple[Lakes, Erased, Erased]:
    """Lakes after an erasure; what its dry run and it said."""
    kafka = request.getfixturevalue("kafka") if request.param == "kafka" else None
    lakes = lakes_of(tmp_path_factory.mktemp("erase"), session_of, kafka)
    lakes.fill()
    settings = lakes.landing.of(lakes.settings)
    check_clean(verify(settings, STREAM))
    before = [path for path in settings.home.rglob("*") if path.is_file()]
    asked = lakes.erase(dry_run=True)
    assert [path for path in settings.home.rglob("*") if path.is_file()] == before
    return lakes, asked, lakes.erase()


def test_nothing_of_the_person_is_left(erased: tuple[Lakes, Erased, Erased]) -> None:
    lakes, asked, done = erased
    assert asked.rows == done.rows
    assert done.found_in == []
    assert done.remains == []
    assert done.completed_at
    assert traces(lakes.settings) == []
    assert asked.batches == (2 if lakes.landing.kafka else 1)


def test_everything_else_is_as_if_they_had_never_landed(erased: tuple[Lakes, Erased, Erased]) -> None:
    lakes, _, _ = erased
    for table in (*TABLES, "gold.spent"):
        assert same(lakes.settings, table) == same(lakes.control, table), table
    assert same(lakes.settings, "silver.visits_conflicts")
    assert same(lakes.settings, "silver.visits_late")


def same(settings: Settings, table: str) -> list[str]:
    found = content(settings, table, but=frozenset(_AT | {"_source", "_winner_source"}))
    assert found or table == "silver.visits_late"
    return found


def test_verify_says_erased(erased: tuple[Lakes, Erased, Erased]) -> None:
    lakes, _, done = erased
    settings = lakes.landing.of(lakes.settings)
    for kind in (Kind.NEW, Kind.ALL, Kind.NEW):
        found = verify(settings, STREAM, kind=kind)
        check_clean_of_erased(found)
        (removals,) = found.of("removals")
        assert {each["table"]: each["rows"] for each in removals.facts["removed"]} == done.rows
    # The next run goes on.
    lakes.landing.land([lakes.settings], batch(visit(50)))
    lakes.drain(lakes.settings)
    check_clean_of_erased(verify(settings, STREAM, kind=Kind.NEW))
    assert lakes.erase().rows == {}


def check_clean_of_erased(found: Any) -> None:
    results = [result for each in found.results.values() for result in each]
    wrong = [(result.name, result.faults, result.problems) for result in results if not result.clean]
    assert wrong == [], wrong
    assert Status.ERASED in {finding.what for finding in found.landed.findings}
