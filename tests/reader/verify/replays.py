"""Replays of dead letters for verify: tables filled with PyIceberg, as in docs/architecture.md.

The consumer's own replay is not used: tests plant faults between its steps and in each column.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.messages import send
from tests.reader.verify.lake import drift_of
from tests.servers import KafkaServer

from consumer.iceberg.marker import Committed, Marker, property_of
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import load_contract
from lakeproof.judge.batch import Judge
from lakeproof.judge.judged import Good, Judged
from lakeproof.kafka.offsets import Offsets, source_name
from lakeproof.kafka.recorded import Recorded, record_topic
from lakeproof.kafka.topic import Topic
from lakeproof.reasons import Reason
from lakeproof.settings import Settings
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_attempts, ensure_message_columns, ensure_tables

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TABLES = stream_tables("events")
BATCHES = {"corrupt_batch", "not_a_batch", "empty_batch", "undecodable", "batch_too_large", "tombstone", "changed"}
EVENTS = Path(__file__).parents[3] / "contracts" / "events.yaml"

Row = dict[str, Any]
Transform = Callable[[bytes], bytes]


def codes(reasons: list[Row]) -> str:
    return "+".join(sorted({reason["code"] for reason in reasons}))


def complete(content: bytes) -> tuple[list[bytes], bytes]:
    """Return the complete objects of a truncated array, and the rest."""
    text, found = content.decode(), []
    at = text.index("[") + 1
    while True:
        begin = at + len(text[at:]) - len(text[at:].lstrip(" ,"))
        try:
            _, stop = json.JSONDecoder().raw_decode(text, begin)
        except ValueError:
            return found, text[at:].encode()
        found.append(text[begin:stop].encode())
        at = stop


class Tables:
    """The tables of the stream events."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.catalog = open_catalog(settings)

    def rows(self, name: str) -> list[Row]:
        found: list[Row] = self.catalog.load_table(name).scan().to_arrow().to_pylist()
        return found

    def append(self, name: str, *rows: Row) -> None:
        if rows:
            table = self.catalog.load_table(name)
            table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))

    def edit(self, name: str, change: Callable[[list[Row]], list[Row] | None]) -> None:
        """Rewrite a table: `change` alters the list of its rows, or returns another one."""
        table = self.catalog.load_table(name)
        rows = table.scan().to_arrow().to_pylist()
        changed = change(rows)
        table.overwrite(pa.Table.from_pylist(rows if changed is None else changed, schema=table.schema().as_arrow()))


class Replayer(Tables):
    """Replays dead letters under a contract that also allows refunds."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        super().__init__(settings)
        folder.mkdir(exist_ok=True)
        text = EVENTS.read_text()
        (folder / "events.yaml").write_text(
            text.replace("- value: purchase\n", "- value: purchase\n          - value: refund\n")
        )
        self._judge = Judge(load_contract(folder, "events"), settings.limits)

    def replay(
        self,
        where: Callable[[Row], bool] = lambda letter: True,
        *,
        transform: Transform | None = None,
        salvage: bool = False,
        most: int = 3,
        steps: int = 4,
    ) -> None:
        """Replay the open dead letters, with only the first `steps` of the four appends."""
        ensure_attempts(self.catalog, "events")
        before = defaultdict(list)
        attempts = self.rows(TABLES.attempts)
        for row in attempts:
            before[row["_source"], row["_position"], row["_letter"]].append(row)
        number = 1 + max((row["replay"] for row in attempts), default=0)
        micro_batch = 1 + max(row["micro_batch_id"] for row in self.rows(TABLES.ledger))
        now = NOON + timedelta(minutes=number)
        own = {"_micro_batch_id": micro_batch, "_ingested_at": now, "_contract_version": "1.2.0"}
        made: dict[str, list[Row]] = {TABLES.attempts: [], TABLES.bronze: [], TABLES.dead_letters: []}
        for letter in self.rows(TABLES.dead_letters):
            earlier = before[letter["_source"], letter["_position"], letter["_attempt"]]
            if any(row["outcome"] == "closed" for row in earlier) or not where(letter):
                continue
            raw = letter["raw"] if transform is None else transform(letter["raw"])
            kept = {name: letter[name] for name in ("_source", "_landed_at", "_key", "_headers") if name in letter}
            is_batch = letter["_attempt"] == 1 and codes(letter["reasons"]) in BATCHES
            units, rest = self._split(raw, salvage) if is_batch else ([raw], None)
            good, bad = self._judged(units)
            reasons: list[Row] | None = None
            if is_batch and not units:
                reasons = letter["reasons"]
            elif not is_batch and bad:
                reasons = bad[0]["reasons"]
            outcome = "closed" if reasons is None else "parked" if len(earlier) + 2 >= most + 1 else "failed"
            attempt = {name: letter[name] for name in ("_source", "_position")} | own
            attempt |= {"_letter": letter["_attempt"], "letter_reasons": codes(letter["reasons"])}
            attempt |= {"_attempt": len(earlier) + 2, "replay": number, "outcome": outcome, "reasons": reasons}
            attempt["salvaged"] = len(units) if is_batch and reasons is None else None
            if transform:
                digest = hashlib.sha256(b"transform").hexdigest()
                attempt |= {"transform": "fix.py", "transform_digest": digest}
                attempt["raw"] = raw if raw != letter["raw"] else None
            made[TABLES.attempts].append(attempt)
            if reasons is None:
                shift = 0 if is_batch else letter["_position"]
                made[TABLES.bronze] += [row | kept | own | {"_position": row["_position"] + shift} for row in good]
                if rest is not None:
                    cut = [{"code": "corrupt_batch", "path": "$", "detail": "cut"}]
                    bad.append({"reasons": cut, "raw": rest, "_position": len(units)})
                made[TABLES.dead_letters] += [row | kept | own | {"_attempt": 2} for row in bad]
        booked = self._ledger(made, number, own)
        for name, rows in [*made.items(), (TABLES.ledger, booked)][:steps]:
            self.append(name, *rows)

    def _split(self, raw: bytes, salvage: bool) -> tuple[list[bytes], bytes | None]:
        try:
            records = json.loads(raw)
        except ValueError:
            return complete(raw) if salvage else ([], None)
        return [json.dumps(record).encode() for record in records], None

    def _judged(self, units: list[bytes]) -> tuple[list[Row], list[Row]]:
        good: list[Row] = []
        bad: list[Row] = []
        for position, unit in enumerate(units):
            for judged in self._judge.judge(b"[" + unit + b"]"):
                good += [row | {"_position": position} for row in judged.good.values.to_pylist()]
                reasons = judged.bad.reasons.to_pylist()
                bad += [{"reasons": each, "raw": unit, "_position": position} for each in reasons]
        return good, bad

    def _ledger(self, made: dict[str, list[Row]], number: int, own: Row) -> list[Row]:
        def place(row: Row) -> str:
            source: str = row["_source"]
            return re.sub(r"/\d{19}$", "", source)

        rows = []
        for of in sorted({place(row) for row in made[TABLES.attempts]}):
            mine = {name: [row for row in rows if place(row) == of] for name, rows in made.items()}
            dead = Counter(codes(row["reasons"]) for row in mine[TABLES.dead_letters])
            closed = Counter(row["letter_reasons"] for row in mine[TABLES.attempts] if row["outcome"] == "closed")
            rows.append(
                {
                    "source": min(row["_source"] for row in mine[TABLES.attempts]),
                    "size": 0,
                    "micro_batch_id": own["_micro_batch_id"],
                    "checkpoint_id": "replay",
                    "units": len(mine[TABLES.bronze]) + dead.total(),
                    "bronze": len(mine[TABLES.bronze]),
                    "dead_letters": sorted(dead.items()),
                    "closed": sorted(closed.items()),
                    "replay": number,
                    "_ingested_at": own["_ingested_at"],
                    "_contract_version": own["_contract_version"],
                }
            )
        return rows


class TopicLake(Tables):
    """A lake of the stream events whose batches are messages of a real topic, judged without Spark."""

    def __init__(self, settings: Settings, kafka: KafkaServer) -> None:
        super().__init__(settings)
        self.topic = kafka.new_topic(partitions=2)
        self.contract = load_contract(settings.contracts, "events")
        ensure_tables(self.catalog, self.contract)
        ensure_message_columns(self.catalog, "events")
        topic_id, _ = Topic(settings.kafka, self.topic).identity()
        record_topic(self.catalog, "events", Recorded(topic_id, Offsets(self.topic)))
        self._kafka = kafka
        self._ends = {0: 0, 1: 0}

    def land(self, values: dict[int, list[bytes]], key: bytes = b"k") -> None:
        """Send messages to partitions, and consume them as one micro-batch."""
        judge = Judge(self.contract, self.settings.limits)
        headers = [("trace", b"\xff"), ("trace", None)]
        told = {"_key": key, "_headers": [{"key": name, "value": value} for name, value in headers]}
        number = 1 + max((row["micro_batch_id"] for row in self.rows(TABLES.ledger)), default=-1)
        begin = str(Offsets.of(self.topic, self._ends))
        own = {"_micro_batch_id": number, "_landed_at": NOON, "_ingested_at": NOON, "_contract_version": "1.1.0"} | told
        made: dict[str, list[Row]] = {TABLES.bronze: [], TABLES.dead_letters: [], TABLES.ledger: []}
        for partition, batches in values.items():
            send(self._kafka, self.topic, batches, partition, key, list(headers))
            dead: Counter[str] = Counter()
            landed: list[Good] = []
            first = self._ends[partition]
            for offset, value in enumerate(batches, first):
                place = own | {"_source": source_name(self.topic, partition, offset)}
                for judged in self._judged(judge, value):
                    good, bad = judged.good, judged.bad
                    landed.append(good)
                    rows = zip(good.values.to_pylist(), good.positions.to_pylist(), strict=True)
                    made[TABLES.bronze] += [row | place | {"_position": position} for row, position in rows]
                    letters = zip(bad.reasons.to_pylist(), bad.raw.to_pylist(), bad.positions.to_pylist(), strict=True)
                    for reasons, raw, position in letters:
                        letter = {"reasons": reasons, "raw": raw, "_position": position, "_attempt": 1}
                        made[TABLES.dead_letters].append(letter | place)
                        dead[codes(reasons)] += 1
            bronze = sum(map(len, landed))
            self._ends[partition] += len(batches)
            made[TABLES.ledger].append(
                {
                    "source": source_name(self.topic, partition, first),
                    "size": len(batches),
                    "etag": str(self._ends[partition]),
                    "micro_batch_id": number,
                    "checkpoint_id": "test",
                    "units": bronze + dead.total(),
                    "bronze": bronze,
                    "dead_letters": sorted(dead.items()),
                    "_ingested_at": NOON,
                    "_contract_version": "1.1.0",
                }
                | drift_of(self.contract.drift, landed)
            )
        for name, rows in made.items():
            self.append(name, *rows)
        end = str(Offsets.of(self.topic, self._ends))
        marker = Committed(Marker("test", number, self.contract.digest, begin, end), 0, 1)
        with self.catalog.load_table(TABLES.ledger).transaction() as transaction:
            transaction.set_properties({property_of(bronze_query("events")): marker.as_text()})

    def _judged(self, judge: Judge, value: bytes) -> Iterator[Judged]:
        if len(value) > self.settings.limits.unpacked_bytes:
            return judge.refuse(Reason.BATCH_TOO_LARGE, "too large", None)
        return judge.judge(value)
