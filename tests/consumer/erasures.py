"""A lake with a person, and the same lake without the person, for the tests of erasures."""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow.parquet as pq
from psycopg import sql
from tests.consumer.lake import SessionOf
from tests.consumer.replays import Landing, content, drain
from tests.servers import KafkaServer

from consumer.removal.avro import unpacked_avro
from consumer.removal.certificate import Erased
from consumer.removal.condition import read_condition
from consumer.removal.erase import erase
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings, settings_of
from lakeproof.storage.s3 import s3_client

STREAM = "visits"
PERSON = "wanda-4711-ü"
WHERE = f"user_id = '{PERSON}'"
CONTRACT = """\
apiVersion: v3.2.0
kind: DataContract
id: visits
version: 1.0.0
status: active
customProperties:
  - {property: eventTime, value: at}
  - {property: silverHorizon, value: 1 hour}
  - {property: driftPolicy, value: rescue}
  - {property: breaker, value: {share: 0.01, units: 1, action: warn}}
schema:
  - name: visits
    properties:
      - {name: id, logicalType: string, required: true, primaryKey: true}
      - {name: user_id, logicalType: string, required: true}
      - {name: at, logicalType: timestamp, required: true}
      - {name: amount, logicalType: integer}
"""
PRODUCT = """\
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
AT = frozenset({"_micro_batch_id", "_landed_at", "_ingested_at", "_decided_at", "_updated_at"})
TABLES = ("bronze.visits", "dead_letters.visits", "silver.visits", "silver.visits_conflicts", "silver.visits_late")


def visit(number: int, user: str = "karl", at: str = "06:00", **fields: Any) -> bytes:
    whole = {"id": f"v{number}", "user_id": user, "at": f"2026-11-21T{at}:00Z", "amount": number} | fields
    return json.dumps(whole).encode()  # with ü escaped


def batch(*records: bytes) -> bytes:
    return b"[" + b", ".join(records) + b"]"


# Data of two runs: of others, and of the person, who comes last in each batch, so that positions are the same.
_LATE = visit(90, at="01:00")
FRIEND = visit(14, "lisa", friend=PERSON)  # names the person in a field that is not in the contract
FIRST = [
    ([visit(1), visit(2, "lisa")], [visit(10, PERSON, "06:10"), visit(11, PERSON, "09:00")]),
    ([visit(3), visit(3, amount=30)], [visit(12, PERSON), visit(12, PERSON, amount=5)]),  # conflicts
    ([visit(4), visit(5, at="not a time")], [FRIEND, visit(13, PERSON, amount="much")]),
    ([visit(6), visit(6)], [visit(15, PERSON, "no time"), visit(16, PERSON), visit(16, PERSON)]),
]
SECOND = [([visit(7, at="08:30"), _LATE], [visit(17, PERSON, "01:00")]), ([visit(8, at="07:30")], [])]
CUT = batch(visit(20), visit(21, PERSON))[:-9]


@dataclass
class Lakes:
    """A lake with the person, and a lake that never had the person."""

    settings: Settings
    control: Settings
    landing: Landing
    session_of: SessionOf

    def fill(self, *, friend_stays: bool = False) -> None:
        """Land two runs in both lakes, and take each through all layers.

        `friend_stays`: the contract discards the field that names the person, so an erasure keeps the row.
        """
        rest = {FRIEND: [visit(14, "lisa")]} if friend_stays else {}
        for number, run in enumerate((FIRST, SECOND)):
            for settings, with_person in ((self.settings, True), (self.control, False)):
                whole = [
                    batch(*others, *(person if with_person else (row for each in person for row in rest.get(each, []))))
                    for others, person in run
                ]
                landing = self.landing if with_person else self.of_control
                more = [CUT, gzip.compress(CUT)] if with_person and not number else []
                landing.land([settings], *whole, *(more if landing.kafka else more[:1]))
                self.drain(settings, landing)

    def __post_init__(self) -> None:
        topic = self.landing.kafka.new_topic() if self.landing.kafka else ""
        self.of_control = Landing(self.landing.kafka, topic, STREAM)

    def drain(self, settings: Settings, landing: Landing | None = None) -> None:
        """Take everything that has landed through all layers."""
        landing = landing or self.landing
        drain(landing.of(settings), self.session_of, landing.source, STREAM)

    def erase(self, where: str = WHERE, **options: Any) -> Erased:
        """Erase the person."""
        settings = self.landing.of(self.settings)
        condition = read_condition(where, load_contract(settings.contracts, STREAM))
        return erase(settings, STREAM, condition, lambda: self.session_of(settings), **options)


def lakes_of(
    folder: Path,
    session_of: SessionOf,
    kafka: KafkaServer | None = None,
    product: str = PRODUCT,
    contract: str = CONTRACT,
    **own: Callable[[str], Any],
) -> Lakes:
    """Make both lakes; `own` has more variables, as functions of the lake's name."""
    contracts, gold = folder / "contracts", folder / "gold"
    contracts.mkdir()
    gold.mkdir()
    (contracts / f"{STREAM}.yaml").write_text(contract)
    (gold / "spent.yaml").write_text(product)
    made = [
        settings_of(
            {
                "LAKE_HOME": folder / name,
                "LAKE_CONTRACTS": contracts,
                "LAKE_GOLD": gold,
                "LAKE_ERASURE_KEY": "a key of the operator",
            }
            | {variable: value(name) for variable, value in own.items()}
        )
        for name in ("lake", "control")
    ]
    landing = Landing(kafka, kafka.new_topic() if kafka else "", STREAM)
    return Lakes(made[0], made[1], landing, session_of)


def traces(settings: Settings, *databases: str, names: Sequence[str] = ("wanda",)) -> list[str]:
    """Return the places of a lake that contain a name: files, objects of its buckets, rows of Postgres databases."""
    found = re.compile("|".join(names))
    return [place for place, text in _texts(settings, databases) if found.search(text)]


def _texts(settings: Settings, databases: Sequence[str]) -> Iterator[tuple[str, str]]:
    for path in settings.home.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(settings.home)), _text(path.read_bytes())
    client = s3_client(settings.s3)
    buckets = {urlsplit(settings.landing.uri).netloc} if settings.landing.uri.startswith("s3:") else set()
    for bucket in buckets:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for item in page.get("Contents", ()):
                body = client.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
                yield f"s3://{bucket}/{item['Key']}", _text(body)
    for database in databases:
        with psycopg.connect(database) as connection:
            names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            for (name,) in names:
                for row in connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name))):
                    yield f"table {name}", repr(row)


def _text(raw: bytes) -> str:
    if raw.startswith(b"PAR1"):
        file = pq.ParquetFile(BytesIO(raw))
        found = f"{file.metadata.metadata}{[_row_group(file, each) for each in range(file.num_row_groups)]}"
        return found + json.dumps(file.read().to_pylist(), default=str, ensure_ascii=False)
    if raw.startswith(b"Obj\x01"):
        raw = unpacked_avro(raw)
    if raw.startswith(b"\x1f\x8b"):
        raw = zlib.decompressobj(31).decompress(raw)
    return raw.decode("utf-8", "replace")


def _row_group(file: pq.ParquetFile, number: int) -> list[str]:
    group = file.metadata.row_group(number)
    return [str(group.column(index).statistics) for index in range(group.num_columns)]


def same(settings: Settings, table: str) -> list[str]:
    """Return the rows of a table, without times and file names."""
    found = content(settings, table, but=AT | {"_source", "_winner_source"})
    assert found or table == "silver.visits_late"
    return found
