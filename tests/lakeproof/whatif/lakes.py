"""A lake filled as the consumer does, without Spark."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from consumer.layers.bronze.ledger import MicroBatch, Sums, ledger_rows
from consumer.layers.bronze.rows import Origins, bronze_rows, dead_letter_rows, drift_sets
from consumer.sources.envelope import Envelope, Message
from lakeproof.catalog import open_catalog
from lakeproof.contracts import Contract, load_contract
from lakeproof.history.apply import carry_out, plan
from lakeproof.judge.batch import Judge
from lakeproof.reasons import reason_sets
from lakeproof.settings import Limits, Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.landing_log import LandedFile
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_attempts, ensure_message_columns

LANDED = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Lake:
    """A lake with one stream, whose contract is a text."""

    def __init__(
        self, settings: Settings, folder: Path, text: str, stream: str = "orders", micro_batch: int = 0
    ) -> None:
        self.settings = settings.model_copy(update={"contracts": folder / "contracts"})
        self.stream = stream
        self.path = self.settings.contracts / f"{stream}.yaml"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text)
        self.tables = stream_tables(stream)
        self.catalog = open_catalog(self.settings)
        self._micro_batch = micro_batch

    @property
    def contract(self) -> Contract:
        return load_contract(self.settings.contracts, self.stream)

    def apply(self, text: str | None = None) -> None:
        """Apply the contract, or a new text for it."""
        if text is not None:
            self.path.write_text(text)
        carry_out(
            self.catalog, plan(self.catalog, self.settings, self.stream), ContractLog(self.settings.state.database)
        )

    def land(self, *batches: bytes | Envelope, day: int = 0, kafka: bool = False, ledger: bool = True) -> None:
        """Land batches as files or messages, and process them in a micro-batch."""
        judge = Judge(self.contract, self.settings.limits)
        self._micro_batch += 1
        batch = MicroBatch(self._micro_batch, "checkpoint", self.contract, LANDED)
        at = LANDED + timedelta(days=day)
        for number, value in enumerate(batches):
            name = f"batch-{self._micro_batch:03}-{number:03}.json"
            envelope = value if isinstance(value, Envelope) else Envelope(value, name, at)
            if kafka:
                source = f"orders/0/{self._micro_batch * 1000 + number:019}"
                envelope = Envelope(envelope.value, source, at, envelope.failure, None, Message(source, b"k", ()))
            self._land(envelope, judge, batch, ledger=ledger)

    def _land(self, envelope: Envelope, judge: Judge, batch: MicroBatch, *, ledger: bool) -> None:
        if envelope.message:
            ensure_message_columns(self.catalog, self.stream)
        origins = Origins.of_envelopes([envelope])
        failure = envelope.failure
        found = judge.refuse(*failure, envelope.value) if failure else judge.judge(envelope.value or b"")
        outcomes: dict[Any, int] = {}
        drift: dict[Any, int] = {}
        for judged in found:
            if len(judged.good):
                columns = origins.columns_of(None, len(judged.good))
                self.append(self.tables.bronze, bronze_rows(judged.good, columns, batch))
                outcomes[envelope.source, None] = outcomes.get((envelope.source, None), 0) + len(judged.good)
                for codes in (codes for row in drift_sets(judged.good) for codes in row):
                    drift[envelope.source, codes] = drift.get((envelope.source, codes), 0) + 1
            if len(judged.bad):
                columns = origins.columns_of(None, len(judged.bad))
                self.append(self.tables.dead_letters, dead_letter_rows(judged.bad, columns, batch))
                for codes in reason_sets(judged.bad.reasons):
                    outcomes[envelope.source, codes] = outcomes.get((envelope.source, codes), 0) + 1
        if ledger:
            part = LandedFile(0, envelope.source, len(envelope.value or b""), "etag", envelope.landed_at or LANDED)
            self.append(self.tables.ledger, ledger_rows([part], outcomes, drift, {}, batch, Sums()))

    def close(self, letters: Sequence[dict[str, Any]], outcome: str = "closed", *, ledger: bool = True) -> None:
        """Record an attempt for some dead letters, as a replay does; the caller adds their rows to bronze."""
        ensure_attempts(self.catalog, self.stream)
        self._micro_batch += 1
        rows = [
            {
                "_source": letter["_source"],
                "_position": letter["_position"],
                "_letter": letter["_attempt"],
                "_attempt": 2,
                "replay": 1,
                "outcome": outcome,
                "_micro_batch_id": self._micro_batch,
                "_ingested_at": LANDED,
            }
            for letter in letters
        ]
        table = self.catalog.load_table(self.tables.attempts)
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
        if ledger:
            table = self.catalog.load_table(self.tables.ledger)
            row = {"source": "s", "micro_batch_id": self._micro_batch, "replay": 1, "_ingested_at": LANDED}
            table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))

    def without_attempts(self) -> None:
        """Set the attempt number of dead letters to null, as another tool may write it."""
        table = self.catalog.load_table(self.tables.dead_letters)
        rows = table.scan().to_arrow()
        at = rows.schema.get_field_index("_attempt")
        table.overwrite(rows.set_column(at, rows.schema.field(at), pa.nulls(len(rows), pa.int32())))

    def append(self, name: str, rows: pa.RecordBatch) -> None:
        table = self.catalog.load_table(name)
        schema = table.schema().as_arrow()
        columns = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.schema.names
            else pa.nulls(len(rows), field.type)
            for field in schema
        ]
        table.append(pa.Table.from_arrays(columns, schema=schema))

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.catalog.load_table(name).scan().to_arrow().to_pylist()
        return found

    def letters(self) -> list[dict[str, Any]]:
        return self.rows(self.tables.dead_letters)


def verdicts(contract: Contract, *batches: bytes, limits: Limits | None = None) -> list[tuple[int, int, str]]:
    """Return batch, position and set of reasons (empty for bronze) of each unit."""
    judge = Judge(contract, limits)
    found = []
    for number, batch in enumerate(batches):
        for judged in judge.judge(batch):
            found += [(number, at, "") for at in judged.good.positions.to_pylist()]
            found += [
                (number, at, why)
                for at, why in zip(judged.bad.positions.to_pylist(), reason_sets(judged.bad.reasons), strict=True)
            ]
    return sorted(found)
