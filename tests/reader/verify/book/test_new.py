"""``verify --new`` reads the data since the last clean proof, and finds each fault in new and in old data."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.reader.verify.lake import BRONZE, DEAD_LETTERS, LEDGER, NOON, Row
from tests.reader.verify.replays import Replayer
from tests.reader.verify.silver.lakes import SilverLake, batch
from tests.reader.verify.silver.tables import KEPT
from tests.reader.verify.silver.tables import LEDGER as SILVER_LEDGER
from tests.selection import first_by_default

from lakeproof.settings import Settings, settings_of
from lakeproof.state.database import open_database
from lakeproof.state.proofs import ProofKind, ProofOutcome, last_proofs
from lakeproof.storage.local import local_path
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_removals
from reader.connect import connect
from reader.verify import registry
from reader.verify.book import book
from reader.verify.check import Check, Result, Scope, Verification
from reader.verify.checks.sources import SECTION
from reader.verify.driver import verify
from reader.verify.tables import accounts

ROOT = Path(__file__).parents[4]
NEW = b'[{"user_id": "a", "event_id": "n1", "event_timestamp": "2026-01-01T12:00:00Z", "event_type": "page_view"}, 7]'
OLD = b'[{"user_id": "a", "event_id": "o1", "event_timestamp": "2026-01-01T10:30:00Z", "event_type": "page_view"}, 6]'
TABLES = (BRONZE, DEAD_LETTERS, LEDGER, KEPT)


class BookLake(SilverLake):
    """A lake with proven micro-batches 0 to 3, and a new micro-batch 4."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        open_database(settings.state.database).dispose()
        self.take(3, OLD)
        self.base = self.proven(ProofKind.NEW)
        self.take(4, NEW)

    def take(self, number: int, content: bytes) -> None:
        """Land a file, and process it in all layers."""
        self.land({f"{number}.json": content})
        self.consume(micro_batch=number)
        self.decide(0 if number == 3 else number, number + 1)

    def proven(self, kind: ProofKind = ProofKind.NEW) -> Verification:
        (found,) = verify(self.settings, "events", kind=kind)
        return found

    def snapshots(self) -> dict[str, int]:
        found = {name: self.catalog.load_table(name).current_snapshot() for name in TABLES}
        return {name: snapshot.snapshot_id for name, snapshot in found.items() if snapshot}

    def roll_back(self, snapshots: dict[str, int]) -> None:
        for name, number in snapshots.items():
            table = self.catalog.load_table(name)
            if (snapshot := table.current_snapshot()) and snapshot.snapshot_id != number:
                table.manage_snapshots().set_current_snapshot(number).commit()

    def data_files(self, name: str) -> list[Path]:
        files = self.catalog.load_table(name).inspect.files().to_pylist()
        return [local_path(str(file["file_path"])) for file in files]


def made(folder: Path) -> BookLake:
    settings = settings_of({"LAKE_HOME": folder / "lake", "LAKE_CONTRACTS": ROOT / "contracts"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "_WAIT_SECONDS", 0)
        return BookLake(settings.model_copy(update={"gold": folder}))  # no data products


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for appends."""
    monkeypatch.setattr(accounts, "_WAIT_SECONDS", 0)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> BookLake:
    return made(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def lake(shared: BookLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[BookLake]:
    """The lake after its first proof, which each proof continues: no other proof is recorded in the book."""
    monkeypatch.setattr(book.proofs, "record", lambda *_: 2)
    before = shared.snapshots()
    landed = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in local_path(shared.root).iterdir()}
    yield shared
    shared.roll_back(before)
    for path, (content, time) in landed.items():
        path.write_bytes(content)
        os.utime(path, ns=(time, time))


def read(found: Verification) -> dict[str, tuple[int, int]]:
    """Return the number of data files of each table, and how many were read."""
    (result,) = found.of("proof")
    return {each["table"]: (each["files"], each["files_read"]) for each in result.facts["tables"]}


def why_all(found: Verification) -> str | None:
    (result,) = found.of("proof")
    why: str | None = result.facts["why_all"]
    return why


def told(found: Verification) -> str:
    """Return all faults and problems as text."""
    results = [result for results in found.results.values() for result in results]
    faults = [f"{each.place} {each.what} {each.details}" for result in results for each in result.faults]
    return "\n".join([*faults, *(problem for result in results for problem in result.problems)])


def verdicts(found: Verification) -> dict[str, int]:
    (silver,) = found.of("silver")
    return dict(silver.facts["verdicts"])


@pytest.mark.all
def test_proofs_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = made(tmp_path)
    (everything,) = lake.base.of("proof")
    assert (lake.base.clean, everything.facts["kind"]) == (True, "all")
    assert everything.remarks == ("everything was proven: the book has no clean proof of it.",)

    opened = []
    storage = type(lake.storage)
    original = storage.read

    def spy(self: Any, uri: str, etag: str | None = None) -> bytes:
        opened.append(uri.rpartition("/")[2])
        return original(self, uri, etag)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "read", spy)
        found = lake.proven()
    assert told(found) == ""
    assert (found.complete, found.proof and found.proof.since) == (True, 1)
    assert {name: count for name, (_, count) in read(found).items()} | dict.fromkeys(TABLES, 1) == {
        name: count for name, (_, count) in read(found).items()
    }
    assert [name for name in opened if name.endswith(".json")] == ["4.json"]
    assert found.landed.facts["landed_units"] == lake.base.landed.facts["landed_units"] + 2
    assert verdicts(found) == {"kept": 1, "duplicates": 0, "conflicts": 0, "late": 0}

    # Nothing is new.
    again = lake.proven()
    assert (again.complete, {count for _, count in read(again).values()}) == (True, {0})
    assert [each.number for each in last_proofs(lake.settings.state.database)] == [3]

    # Keys that were kept before the last proof are not kept again.
    events = batch(
        ("x", "2026-01-01T10:00:00Z", "a"),  # a duplicate of one of micro-batch 0
        ("y", "2026-01-01T10:00:00Z", "b"),  # a conflict
        ("w", "2026-01-01T12:00:00Z", "a"),
        ("w", "2026-01-01T12:00:00Z", "a"),
        ("older", "2025-12-20T10:00:00Z", "a"),
    )
    with lake.catalog.load_table(BRONZE).transaction() as transaction:
        transaction.set_properties({"write.parquet.compression-codec": "uncompressed"})
    lake.take(5, events)
    found = lake.proven()
    assert (told(found), verdicts(found)) == ("", {"kept": 1, "duplicates": 2, "conflicts": 1, "late": 1})

    # A value changed in place: storage reports the same file, so --new does not read it.
    (path,) = [path for path in lake.data_files(BRONZE) if b"older" in path.read_bytes()]
    content, before = path.read_bytes(), path.stat()
    path.write_bytes(content.replace(b"older", b"oldes", 1))
    assert "bronze.events other rows than were proven" in told(lake.proven())  # its modification time has changed
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert lake.proven().clean
    by_all = told(lake.proven(ProofKind.ALL))
    assert "bronze.events data files with other rows than were proven" in by_all
    assert path.name in by_all
    path.write_bytes(content)

    # A proof that is killed leaves nothing.
    number = last_proofs(lake.settings.state.database)[0].number

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(book.proofs, "record", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.proven()
    assert last_proofs(lake.settings.state.database)[0].number == number

    # A replaced table is proven as a whole: of silver, without the rest.
    assert lake.proven().clean
    for name, reason in ((KEPT, None), (DEAD_LETTERS, f"the book is of another {DEAD_LETTERS}")):
        table = lake.catalog.load_table(name)
        rows, properties = table.scan().to_arrow(), dict(table.properties)
        lake.catalog.drop_table(name)
        lake.catalog.create_table(name, table.schema(), properties=properties).append(rows)
        found = lake.proven()
        assert (told(found), why_all(found), sum(verdicts(found).values())) == ("", reason, 14)

    # Without the state database, there is no book.
    Path(lake.settings.state.database.removeprefix("sqlite:///")).unlink()
    found = lake.proven()
    assert (told(found), found.proof and found.proof.number) == ("", 0)
    assert why_all(found) == "the book has no clean proof of it"


Change = Callable[[list[Row]], list[Row] | None]


def of(number: int, rows: list[Row]) -> Row:
    """Return the first row of a micro-batch."""
    return next(row for row in rows if row.get("_micro_batch_id", row.get("micro_batch_id")) == number)


def altered(column: str, value: object, number: int) -> Change:
    def change(rows: list[Row]) -> None:
        of(number, rows)[column] = value

    return change


def lost(number: int) -> Change:
    return lambda rows: [row for row in rows if row is not of(number, rows)]


def doubled(number: int) -> Change:
    return lambda rows: [*rows, of(number, rows)]


@pytest.mark.parametrize(
    ("table", "change", "expected"),
    first_by_default(
        [
            (BRONZE, altered("user_id", "b", 3), "bronze.events other rows than were proven"),
            (BRONZE, lost(3), "bronze.events other rows than were proven"),
            (BRONZE, doubled(3), "bronze.events other rows than were proven"),
            (BRONZE, lost(4), "4.json lost"),
            (BRONZE, doubled(4), "4.json doubled"),
            (BRONZE, altered("_micro_batch_id", None, 3), "bronze.events"),
            (DEAD_LETTERS, altered("raw", b"8", 3), "dead_letters.events other rows than were proven"),
            (DEAD_LETTERS, altered("raw", b"8", 4), "the dead letter of unit 1 differs from the landed bytes"),
            (KEPT, altered("user_id", "b", 3), "silver.events other rows than were proven"),
            (KEPT, doubled(4), "several rows of one record"),
        ],
    ),
)
def test_each_fault_in_a_table_is_found(lake: BookLake, table: str, change: Change, expected: str) -> None:
    lake.edit(table, change)
    found = lake.proven()
    assert expected in told(found)
    assert found.proof
    assert (found.proof.kind, found.proof.outcome, found.proof.since) == (ProofKind.NEW, ProofOutcome.FAILED, 1)


@pytest.mark.parametrize(
    ("table", "change"),
    first_by_default([(LEDGER, lost(1)), (LEDGER, altered("units", 9, 1)), (SILVER_LEDGER, doubled(1))]),
)
def test_with_another_ledger_everything_is_proven(lake: BookLake, table: str, change: Change) -> None:
    before = lake.catalog.load_table(table).current_snapshot()
    lake.edit(table, change)
    found = lake.proven()
    lake.roll_back({table: before.snapshot_id if before else 0})
    assert not found.clean
    if table == LEDGER:
        assert why_all(found) == f"{LEDGER} has other rows than were proven: it was restored, or changed"
    else:
        assert sum(verdicts(found).values()) == 9


@pytest.mark.all
def test_landed_files_that_changed_are_found(lake: BookLake) -> None:
    for name in ("0.json", "4.json"):
        content = lake.storage.read(lake.uri(name))
        lake.overwrite(name, content.replace(b"page_view", b"page_vieW"))
        assert f"{name} changed" in told(lake.proven())
        lake.overwrite(name, content)  # a restored copy has another time, but the same bytes
    found = lake.proven()
    assert told(found) == ""
    whole, content = found.landed.facts, lake.storage.read(lake.uri("1.json"))
    lake.overwrite("0.json", b" ")
    lake.remove("1.json")
    lake.land({"again.json": content})
    found = lake.proven()
    lake.remove("again.json")
    # Proven files that are gone are only counted: after years, there are many.
    assert [f"{each.place} {each.what}" for each in found.landed.findings] == ["0.json changed", "again.json pending"]
    facts = found.landed.facts
    assert facts["counts"] == whole["counts"] | {
        "expired": 1,
        "changed": 1,
        "pending": 1,
        "ok": whole["counts"]["ok"] - 2,
    }
    assert {facts[name] - whole[name] for name in ("bronze_rows", "dead_letters")} == {0}
    assert facts["resent"] == (("1.json", "again.json"),)


@pytest.mark.all
def test_compactions_are_proven_without_landed_files(lake: BookLake) -> None:
    for name in TABLES:
        lake.edit(name, lambda rows: rows)
    found = lake.proven()
    assert told(found) == ""
    assert {read(found)[name][0] - read(found)[name][1] for name in TABLES} == {0}
    lake.edit(BRONZE, doubled(0))
    assert "bronze.events other rows than were proven" in told(lake.proven())


@pytest.mark.all
def test_a_source_that_is_taken_again_is_found(lake: BookLake) -> None:
    row = next(row for row in lake.rows(BRONZE) if row["_source"] == "0.json")
    booking = next(row for row in lake.rows(LEDGER) if row["source"] == "0.json")
    lake.append(BRONZE, row | {"_micro_batch_id": 5})
    lake.append(LEDGER, booking | {"micro_batch_id": 5, "units": 1, "bronze": 1})
    assert "0.json doubled" in told(lake.proven())


@pytest.mark.all
def test_rows_beyond_the_ledger_are_not_proven_yet(lake: BookLake) -> None:
    """A micro-batch during its append: its files are read again when it is complete."""
    row = lake.rows(BRONZE)[0]
    lake.append(BRONZE, row | {"_micro_batch_id": 5, "_source": "5.json", "_position": 0})
    found = lake.proven()
    assert "5.json" in told(found)  # nobody is appending: the ledger lacks it
    assert found.proof
    assert found.proof.reached["tables"][BRONZE]["before"] == 5


@pytest.mark.all
def test_the_first_replay_of_all_during_a_proof_loses_nothing(
    lake: BookLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = stream_tables("events").attempts

    def replay(_: Scope) -> tuple[Result, ...]:
        if not lake.catalog.table_exists(attempts):
            Replayer(lake.settings, tmp_path).replay()
        return ()

    monkeypatch.setattr(registry, "CHECKS", [Check("replay", SECTION, replay), *registry.CHECKS])
    try:
        found = lake.proven()
        assert told(found) == ""
        assert found.proof
        assert found.proof.since
    finally:
        lake.catalog.drop_table(attempts)


def test_rows_that_are_erased_during_a_proof_make_it_start_again(lake: BookLake) -> None:
    removals = stream_tables("events").removals
    with connect(lake.settings) as session:
        opened = book.Book(lake.settings, session, "events", ProofKind.ALL)
        opened.open(lake.catalog, lake.contract, of_topic=False)
        assert not opened.is_outdated(lake.catalog)
        ensure_removals(lake.catalog, "events")
        try:
            row = {"request": "1", "what": "erased", "table": BRONZE, "source": "3.json", "_position": 0}
            lake.append(removals, row | {"micro_batch_id": 3, "rows": 1, "hash": 0, "removed_at": NOON})
            assert opened.is_outdated(lake.catalog)
        finally:
            lake.catalog.drop_table(removals)
