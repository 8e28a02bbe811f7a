"""A new kind of source takes one module and one line: here, numbered lines of text files."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.lake import SessionOf, rows

from consumer.layers import base
from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from consumer.sources.envelope import Envelope
from consumer.sources.registry import SOURCES
from consumer.sources.source import Held, Source
from lakeproof.checkpoint import checkpoint_folder
from lakeproof.errors import LakeproofError
from lakeproof.settings import Limits, Settings
from lakeproof.state.contract_log import ContractLog
from lakeproof.storage.local import local_path

pytestmark = pytest.mark.spark

THEN = datetime(2026, 11, 22, tzinfo=UTC)


@dataclass(frozen=True)
class Line:
    """A line ``number batch``; its number is its position."""

    number: int
    batch: str
    landed_at: datetime = THEN
    given_up: bool = False

    @property
    def name(self) -> str:
        return f"line/{self.number:06}"

    @property
    def size(self) -> int:
        return len(self.batch)

    @property
    def etag(self) -> str:
        return str(hash(self.batch))


@dataclass(frozen=True)
class LineReader:
    def groups(self, parts: Sequence[Line], cores: int) -> list[list[Line]]:
        return [list(parts)]

    def envelopes(
        self, parts: Iterable[Line], limits: Limits, touched: Callable[[Line], None] | None
    ) -> Iterator[Envelope]:
        return (Envelope(part.batch.encode(), part.name, part.landed_at) for part in parts)


class LineSource(Source[Line]):
    """Lines of text files."""

    reader = LineReader()
    root = ""

    def __init__(self, settings: Settings, stream: str, query: str, available_now: bool) -> None:
        self._contracts = ContractLog(settings.state.database)
        self._stream = stream
        self.root = str(settings.home / "lines")

    def prepare(self, catalog: Any) -> None: ...

    def check_without_tables(self) -> None: ...

    def resume(self, ledger: Any, accounted: str | None) -> str:
        return accounted or "0"

    def next(self, after: str, cores: int) -> Held[Line] | None:
        lines = self.held_between(after, str(1 << 60), lambda: ())
        if not lines:
            return None
        contract = self._contracts.current(self._stream)
        assert contract
        return Held(lines, after, str(lines[-1].number + 1), contract)

    def held_between(self, start: str, end: str, names: Callable[[], Iterable[str]]) -> list[Line]:
        text = "".join(file.read_text() for file in Path(self.root).iterdir())
        lines = [Line(int(number), batch) for number, batch in (line.split(" ", 1) for line in text.splitlines())]
        return sorted((line for line in lines if int(start) <= line.number < int(end)), key=lambda line: line.number)

    def size_of(self, parts: Sequence[Line]) -> dict[str, int]:
        return {"lines": len(parts)}

    def is_origin(self, position: str) -> bool:
        return position == "0"


def write(settings: Settings, first: int, count: int) -> None:
    folder = settings.home / "lines"
    folder.mkdir(parents=True, exist_ok=True)
    event = {"user_id": "u", "event_timestamp": "2026-11-21T06:00:00Z", "event_type": "page_view"}
    batches = [json.dumps([{**event, "event_id": str(number)}, {}]) for number in range(first, first + count)]
    text = "".join(f"{number} {batch}\n" for number, batch in enumerate(batches, first))
    part = settings.home / "part"
    part.write_text(text)
    part.replace(folder / f"{first}.txt")


def test_a_new_source_fits_in_and_is_exactly_once_over_a_crash_and_a_lost_checkpoint(
    lake_settings: Settings, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "lines", LineSource)

    def drain() -> None:
        query = BronzeQuery(lake_settings, "events", Trigger(available_now=True), "lines")
        run_queries(lake_settings, [query], lambda: session_of(lake_settings), available_now=True)

    def found(table: str) -> list[tuple[str, int]]:
        return sorted((row["_source"], row["_position"]) for row in rows(lake_settings, table))

    write(lake_settings, 0, 3)
    drain()
    write(lake_settings, 3, 2)
    real = base.append_once

    def crash(table: Any, *arguments: Any) -> bool:
        if table.name.startswith("dead_letters"):
            raise RuntimeError("killed")
        return real(table, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(base, "append_once", crash)
        with pytest.raises(LakeproofError, match="killed"):
            drain()
    shutil.rmtree(local_path(checkpoint_folder(lake_settings, "bronze-events")))
    write(lake_settings, 5, 1)
    drain()
    drain()
    assert found("bronze.events") == [(f"line/{number:06}", 0) for number in range(6)]
    assert found("dead_letters.events") == [(f"line/{number:06}", 1) for number in range(6)]
    ledger = [(row["source"], row["units"], row["bronze"]) for row in rows(lake_settings, "ledger.events")]
    assert sorted(ledger) == [(f"line/{number:06}", 2, 1) for number in range(6)]
