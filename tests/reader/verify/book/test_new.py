"""``verify --new`` reads what came since the last clean proof, and finds each fault in new and in old data."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.reader.verify.lake import BRONZE, DEAD_LETTERS, LEDGER, Row
from tests.reader.verify.silver.lakes import SilverLake, batch
from tests.reader.verify.silver.tables import KEPT

from lakeproof.settings import Settings
from lakeproof.state.database import open_database
from lakeproof.state.proofs import Kind, Outcome, last_proofs
from lakeproof.storage.local import local_path
from reader.verify.check import Verification
from reader.verify.driver import verify
from reader.verify.tables import accounts

NEW = b'[{"user_id": "a", "event_id": "n1", "event_timestamp": "2026-01-01T12:00:00Z", "event_type": "page_view"}, 7]'
OLD = b'[{"user_id": "a", "event_id": "o1", "event_timestamp": "2026-01-01T10:30:00Z", "event_type": "page_view"}, 6]'


class BookLake(SilverLake):
    """A lake whose micro-batches 0 to 3 were proven; micro-batch 4 came since then."""

    def __init__(self, settings: Settings, *, has_news: bool = True) -> None:
        super().__init__(settings)
        open_database(settings.state.database).dispose()
        self.take(3, OLD)
        self.decide(0, 4)
        self.base = self.proven(Kind.NEW)
        if has_news:
            self.take(4, NEW)
            self.decide(4, 5)

    def take(self, number: int, content: bytes) -> None:
        self.land({f"{number}.json": content})
        self.consume(micro_batch=number)

    def proven(self, kind: Kind = Kind.NEW) -> Verification:
        (found,) = verify(self.settings, "events", kind=kind)
        return found

    def compact(self, *names: str) -> None:
        """Rewrite tables, as any tool may do."""
        for name in names:
            self.edit(name, lambda rows: rows)

    def data_files(self, name: str) -> list[Path]:
        files = self.catalog.load_table(name).inspect.files().to_pylist()
        return [local_path(str(file["file_path"])) for file in files]


@pytest.fixture
def lake(lake_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BookLake:
    monkeypatch.setattr(accounts, "_WAIT_SECONDS", 0)
    return BookLake(lake_settings.model_copy(update={"gold": tmp_path}))


def read(found: Verification) -> dict[str, tuple[int, int]]:
    """Data files of each table, and how many of them were read."""
    (result,) = found.of("proof")
    return {each["table"]: (each["files"], each["files_read"]) for each in result.facts["tables"]}


def told(found: Verification) -> str:
    """All that is wrong."""
    results = [result for results in found.results.values() for result in results]
    faults = [f"{each.place} {each.what} {each.details}" for result in results for each in result.faults]
    return "\n".join([*faults, *(problem for result in results for problem in result.problems)])


def test_only_what_is_new_is_read(lake: BookLake) -> None:
    (everything,) = lake.base.of("proof")
    assert (lake.base.clean, everything.facts["kind"]) == (True, "all")
    assert everything.remarks == ("everything was proven: the book has no clean proof of it.",)
    found = lake.proven()
    assert told(found) == ""
    assert (found.complete, found.proof and found.proof.since) == (True, 1)
    tables = read(found)
    assert {name: tables[name][1] for name in (BRONZE, DEAD_LETTERS, LEDGER, KEPT)} == dict.fromkeys(
        (BRONZE, DEAD_LETTERS, LEDGER, KEPT), 1
    )
    assert found.landed.facts["landed_units"] == lake.base.landed.facts["landed_units"] + 2
    (silver,) = found.of("silver")
    assert silver.facts["verdicts"] == {"kept": 1, "duplicates": 0, "conflicts": 0, "late": 0}
    # And once more: nothing is new.
    again = lake.proven()
    assert (again.complete, {count for _, count in read(again).values()}) == (True, {0})
    assert [each.number for each in last_proofs(lake.settings.state.database)] == [3]


def test_landed_files_that_were_proven_are_not_opened(lake: BookLake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    storage = type(lake.storage)
    original = storage.read

    def spy(self: Any, uri: str, etag: str | None = None) -> bytes:
        opened.append(uri.rpartition("/")[2])
        return original(self, uri, etag)

    monkeypatch.setattr(storage, "read", spy)
    assert lake.proven().clean
    assert [name for name in opened if name.endswith(".json")] == ["4.json"]


def test_keys_that_were_kept_before_are_not_kept_again(lake: BookLake) -> None:
    assert lake.proven().clean
    again = batch(
        ("x", "2026-01-01T10:00:00Z", "a"),  # a duplicate of one of micro-batch 0
        ("y", "2026-01-01T10:00:00Z", "b"),  # a conflict
        ("w", "2026-01-01T12:00:00Z", "a"),
        ("w", "2026-01-01T12:00:00Z", "a"),
        ("older", "2025-12-20T10:00:00Z", "a"),
    )
    lake.take(5, again)
    lake.decide(5, 6)
    found = lake.proven()
    assert told(found) == ""
    (silver,) = found.of("silver")
    assert silver.facts["verdicts"] == {"kept": 1, "duplicates": 2, "conflicts": 1, "late": 1}


Change = Callable[[list[Row]], list[Row] | None]


def altered(column: str, value: object, number: int) -> Change:
    """Another value in the first row of a micro-batch."""

    def change(rows: list[Row]) -> None:
        row = next(row for row in rows if row.get("_micro_batch_id", row.get("micro_batch_id")) == number)
        row[column] = value

    return change


def lost(number: int) -> Change:
    def change(rows: list[Row]) -> list[Row]:
        mine = [row for row in rows if row.get("_micro_batch_id", row.get("micro_batch_id")) == number]
        return [row for row in rows if row is not mine[0]]

    return change


def doubled(number: int) -> Change:
    def change(rows: list[Row]) -> list[Row]:
        return [*rows, next(row for row in rows if row.get("_micro_batch_id", row.get("micro_batch_id")) == number)]

    return change


@dataclass(frozen=True)
class Planted:
    table: str
    column: str
    value: object


PLANTED = [Planted(BRONZE, "user_id", "b"), Planted(DEAD_LETTERS, "raw", b"8"), Planted(KEPT, "user_id", "b")]


@pytest.mark.parametrize("number", [3, 4], ids=["old", "new"])
@pytest.mark.parametrize("planted", PLANTED, ids=[each.table for each in PLANTED])
def test_each_fault_in_a_table_is_found(lake: BookLake, planted: Planted, number: int) -> None:
    table = lake.catalog.load_table(planted.table)
    sound = table.current_snapshot()
    assert sound
    for change in (altered(planted.column, planted.value, number), lost(number), doubled(number)):
        lake.edit(planted.table, change)
        found = lake.proven()
        assert planted.table in told(found) or f"{number}.json" in told(found)
        assert (found.proof and found.proof.outcome, found.proof and found.proof.since) == (Outcome.FAILED, 1)
        table.refresh()
        table.manage_snapshots().set_current_snapshot(sound.snapshot_id).commit()
        table.refresh()
    found = lake.proven()
    assert (told(found), found.proof and found.proof.since) == ("", 1)


@pytest.mark.parametrize("change", [lost(1), doubled(1), altered("units", 9, 1)], ids=["lost", "doubled", "altered"])
def test_with_another_ledger_everything_is_proven(lake: BookLake, change: Change) -> None:
    lake.edit(LEDGER, change)
    found = lake.proven()
    assert not found.clean
    (result,) = found.of("proof")
    assert result.facts["why_all"] == "ledger.events has other rows than were proven: it was restored, or changed"


@pytest.mark.parametrize("name", ["0.json", "4.json"])
def test_landed_files_that_changed_are_found(lake: BookLake, name: str) -> None:
    content = lake.storage.read(lake.uri(name))
    lake.overwrite(name, content.replace(b"page_view", b"page_vieW"))
    found = lake.proven()
    assert f"{name} changed" in told(found)
    lake.overwrite(name, content)  # a restored copy has another time, and the same bytes
    assert told(lake.proven()) == ""
    lake.overwrite(name, content + b" ")
    assert f"{name} changed" in told(lake.proven())
    lake.remove(name)
    found = lake.proven()
    assert (told(found), found.landed.facts["counts"]["expired"]) == ("", 1)


def test_compactions_are_proven_without_landed_files(lake: BookLake) -> None:
    lake.compact(BRONZE, DEAD_LETTERS, LEDGER, KEPT)
    found = lake.proven()
    assert told(found) == ""
    assert {read(found)[name] for name in (BRONZE, DEAD_LETTERS, LEDGER)} <= {(1, 1), (2, 2)}
    # A compaction that doubles an old row.
    lake.edit(BRONZE, doubled(0))
    assert "bronze.events other rows than were proven" in told(lake.proven())


def test_a_source_that_is_taken_again_is_found(lake: BookLake) -> None:
    assert lake.proven().clean
    row = next(row for row in lake.rows(BRONZE) if row["_source"] == "0.json")
    booking = next(row for row in lake.rows(LEDGER) if row["source"] == "0.json")
    lake.append(BRONZE, row | {"_micro_batch_id": 5})
    lake.append(LEDGER, booking | {"micro_batch_id": 5, "units": 1, "bronze": 1})
    assert "0.json doubled" in told(lake.proven())


def test_a_file_damaged_in_place_is_found_by_all(lake: BookLake) -> None:
    """Its size and time are as they were, so nothing tells that it has to be read."""
    found = lake.proven()
    assert found.clean
    table = lake.catalog.load_table(BRONZE)
    (path,) = [path for path in lake.data_files(BRONZE) if b"o1" in path.read_bytes()] or lake.data_files(BRONZE)[:1]
    before, rows = path.stat(), pa.parquet.read_table(path) if hasattr(pa, "parquet") else None
    assert rows is not None or table
    import pyarrow.parquet as pq

    damaged = pq.read_table(path)
    index = damaged.schema.get_field_index("user_id")
    other = pa.array([f"{value}!" for value in damaged["user_id"].to_pylist()], damaged.schema.field(index).type)
    pq.write_table(damaged.set_column(index, damaged.schema.field(index), other), path)
    path.write_bytes(path.read_bytes()[: before.st_size].ljust(before.st_size, b"\0")) if False else None
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    if path.stat().st_size == before.st_size:
        assert lake.proven().clean
    assert "bronze.events" in told(lake.proven(Kind.ALL))


def test_with_no_book_or_one_of_another_lake_everything_is_proven(lake: BookLake) -> None:
    Path(lake.settings.state.database.removeprefix("sqlite:///")).unlink()
    found = lake.proven()
    assert (told(found), found.proof and found.proof.number) == ("", 0)
    (result,) = found.of("proof")
    assert result.facts["why_all"] == "the book has no clean proof of it"


def test_another_table_of_the_same_name_is_proven_as_a_whole(lake: BookLake) -> None:
    assert lake.proven().clean
    for name, reason in ((KEPT, None), (DEAD_LETTERS, f"the book is of another {DEAD_LETTERS}")):
        table = lake.catalog.load_table(name)
        rows, properties = table.scan().to_arrow(), dict(table.properties)
        lake.catalog.drop_table(name)
        again = lake.catalog.create_table(name, table.schema(), properties=properties)
        again.append(rows)
        found = lake.proven()
        assert told(found) == ""
        (result,) = found.of("proof")
        assert result.facts["why_all"] == reason
        (silver,) = found.of("silver")
        assert sum(silver.facts["verdicts"].values()) == 9


def test_a_proof_that_is_killed_leaves_nothing(lake: BookLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("reader.verify.book.book.proofs.record", killed)
    with pytest.raises(KeyboardInterrupt):
        lake.proven()
    assert [each.number for each in last_proofs(lake.settings.state.database)] == [1]


def test_rows_beyond_the_ledger_are_not_proven_yet(lake: BookLake) -> None:
    """A micro-batch that is being appended: its files are read again when it is complete."""
    row = lake.rows(BRONZE)[0]
    lake.land({"5.json": json.dumps([{"event_id": "x"}]).encode()})
    lake.append(BRONZE, row | {"_micro_batch_id": 5, "_source": "5.json", "_position": 0})
    found = lake.proven()
    assert "5.json" in told(found)  # nobody is appending: the ledger lacks it
    assert found.proof
    assert found.proof.reached["tables"][BRONZE]["before"] == 5
