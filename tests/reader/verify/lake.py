"""A lake for verify: landed batches, consumed with the consumer's own judge, but without Spark."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from tests.lakes import put_back

from consumer.sources.files.read import envelopes
from lakeproof.catalog import open_catalog
from lakeproof.contracts import DriftPolicy, load_contract
from lakeproof.judge.batch import Judge
from lakeproof.judge.judged import Bad, Good
from lakeproof.landing.selection import is_hidden
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandedFile
from lakeproof.storage.local import local_path
from lakeproof.tables.schemas import ensure_tables

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BRONZE, DEAD_LETTERS, LEDGER = "bronze.events", "dead_letters.events", "ledger.events"

Row = dict[str, Any]


class Lake:
    """A lake of the stream events."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.root = f"{settings.landing.uri}/events"
        self.zone = landing_zone(settings, "events")
        self.storage = self.zone.storage
        self.contract = load_contract(settings.contracts, "events")
        self.limits = settings.limits
        self.catalog = open_catalog(settings)
        ensure_tables(self.catalog, self.contract)
        self._consumed: set[str] = set()

    def uri(self, name: str) -> str:
        """URI of a landed file."""
        return f"{self.root}/{quote(name)}"

    def land(self, files: dict[str, bytes]) -> None:
        """Land batches."""
        for name, content in files.items():
            self.storage.write_new(self.uri(name), content)

    def overwrite(self, name: str, content: bytes) -> None:
        """Overwrite a landed file of a local folder."""
        local_path(self.uri(name)).write_bytes(content)

    def remove(self, name: str) -> None:
        """Remove a landed file of a local folder."""
        local_path(self.uri(name)).unlink()

    def consume(self, changed: frozenset[str] = frozenset(), micro_batch: int = 0, at: datetime = NOON) -> None:
        """Judge newly landed files, and append the units; files in `changed` are overwritten before they are read.

        Landing and judging have the given time, regardless of the file's.
        """
        files = [each for each in self.zone.list() if each[0] not in self._consumed]
        self._consumed |= {name for name, _ in files}
        listed = [
            LandedFile(seq, name, file.size, file.etag, file.modified_at)
            for seq, (name, file) in enumerate(files)
            if not is_hidden(name)
        ]
        for name in changed:
            self.overwrite(name, b"overwritten")
        judge = Judge(self.contract, self.limits)
        tables: dict[str, list[pa.Table]] = {BRONZE: [], DEAD_LETTERS: []}
        ledger = []
        for file, envelope in zip(listed, envelopes(listed, self.zone, self.limits), strict=True):
            failure = envelope.failure
            judged = list(judge.refuse(*failure, envelope.value) if failure else judge.judge(envelope.value))
            good, bad = [each.good for each in judged], [each.bad for each in judged]
            tables[BRONZE] += [_with(_columns(each), file.name, micro_batch, at) for each in good]
            tables[DEAD_LETTERS] += [_with(_letters(each), file.name, micro_batch, at) for each in bad]
            booking = _booking(file, sum(map(len, good)), [unit for each in bad for unit in each.reasons.to_pylist()])
            booking["content_hash"] = envelope.content_hash
            booking |= {"landed_at": at, "_ingested_at": at}
            ledger.append(booking | {"micro_batch_id": micro_batch} | drift_of(self.contract.drift, good))
        for name, parts in tables.items():
            self.catalog.load_table(name).append(pa.concat_tables(parts))
        self._append(LEDGER, ledger)

    def append(self, name: str, *rows: Row) -> None:
        """Append rows to a table; missing columns are null."""
        self._append(name, list(rows))

    def edit(self, name: str, change: Callable[[list[Row]], list[Row] | None]) -> None:
        """Rewrite a table: `change` alters the list of its rows, or returns another list."""
        table = self.catalog.load_table(name)
        rows = table.scan().to_arrow().to_pylist()
        changed = change(rows)
        table.overwrite(pa.Table.from_pylist(rows if changed is None else changed, schema=table.schema().as_arrow()))

    def rows(self, name: str) -> list[Row]:
        """Rows of a table."""
        found: list[Row] = self.catalog.load_table(name).scan().to_arrow().to_pylist()
        return found

    def _append(self, name: str, rows: list[Row]) -> None:
        table = self.catalog.load_table(name)
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


@contextmanager
def restored(lake: Lake) -> Iterator[None]:
    """Undo changes made in the context: to tables, and to landed files of a local folder.

    Files of the warehouse must not be changed or removed, and no database may be created.
    """
    databases, consumed = sorted(lake.settings.home.glob("*.db")), set(lake._consumed)
    folder = local_path(lake.root)
    landed = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}
    with put_back(lake.settings):
        yield
    assert sorted(lake.settings.home.glob("*.db")) == databases, "a database that would not be put back"
    lake._consumed = consumed
    for path in folder.rglob("*"):
        if path.is_file() and path not in landed:
            path.unlink()
    for path, (content, time) in landed.items():
        if not path.exists() or path.stat().st_mtime_ns != time or path.read_bytes() != content:
            path.write_bytes(content)
            os.utime(path, ns=(time, time))


def _with(units: pa.Table, source: str, micro_batch: int, at: datetime) -> pa.Table:
    for name, value, kind in (
        ("_source", source, pa.string()),
        ("_micro_batch_id", micro_batch, pa.int64()),
        ("_landed_at", at, pa.timestamp("us", "UTC")),
        ("_ingested_at", at, pa.timestamp("us", "UTC")),
        ("_contract_version", "1.0.0", pa.string()),
    ):
        units = units.append_column(name, pa.array([value] * len(units), kind))
    return units


def _columns(good: Good) -> pa.Table:
    table = pa.Table.from_batches([good.values]).append_column("_position", good.positions)
    return table if good.rescued is None else table.append_column("_rescued", good.rescued)


def _letters(bad: Bad) -> pa.Table:
    attempts = pa.array([1] * len(bad), pa.int32())
    columns = {"reasons": bad.reasons, "raw": bad.raw, "_position": bad.positions, "_attempt": attempts}
    return pa.Table.from_pydict(columns)


def drift_of(policy: DriftPolicy, good: list[Good]) -> Row:
    """Return the columns of the ledger that count the drifted values of a source."""
    if policy is DriftPolicy.FREEZE:
        return {}
    counts = Counter(codes for each in good if each.drift is not None for codes in each.drift.flatten().to_pylist())
    return {"rescued" if policy is DriftPolicy.RESCUE else "discarded": sorted(counts.items())}


def _booking(file: LandedFile, bronze: int, reasons: list[list[dict[str, str]]]) -> Row:
    dead = Counter("+".join(sorted({reason["code"] for reason in unit})) for unit in reasons)
    return {
        "source": file.name,
        "size": file.size,
        "etag": file.etag,
        "micro_batch_id": 0,
        "checkpoint_id": "test",
        "units": bronze + dead.total(),
        "bronze": bronze,
        "dead_letters": sorted(dead.items()),
        "landed_at": NOON,
        "_ingested_at": NOON,
        "_contract_version": "1.0.0",
    }
