"""``consumer retain --of``: rows that have expired are gone and accounted for, and all the rest is as it was."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.consumer.crashes import crash_before
from tests.consumer.lake import SessionOf, rows
from tests.consumer.replays import (
    STREAM,
    Landing,
    apply,
    batch,
    check_clean,
    content,
    drain,
    drain_files,
    order,
    replay,
    verify,
    write_contract,
)
from tests.servers import KafkaServer

from consumer.app.retain import Retained, as_json, lines, retain_all
from consumer.app.retain_rows import UNEVEN
from consumer.asked import asked_to_run
from consumer.iceberg import append as appending
from consumer.iceberg import remove as removing
from consumer.layers.bronze.replay import Replay
from consumer.layers.bronze.transform import read_transform
from consumer.layers.rebuild import rebuild
from consumer.layers.registry import layers_of
from lakeproof.backup.manifest import folder_at
from lakeproof.backup.restore import restore
from lakeproof.backup.take import back_up
from lakeproof.catalog import open_catalog
from lakeproof.contracts.model import Removable
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings, settings_of
from lakeproof.state.lease import LeaseHeldError, lease
from lakeproof.state.proofs import Kind
from lakeproof.tables.expired import Expired, expired_of
from reader.connect import connect
from reader.page.collect import collect
from reader.verify.book.book import OTHER_THAN_BOOKED
from reader.verify.checks.removals import NOT_ACCOUNTED, STILL_THERE

pytestmark = pytest.mark.spark

LETTERS, CONFLICTS, LATE = f"dead_letters.{STREAM}", f"silver.{STREAM}_conflicts", f"silver.{STREAM}_late"
EXPIRED = {LETTERS: 4, CONFLICTS: 1, LATE: 1}
OLD = "2026-09-01T06:00:00Z"  # before the horizon
NOW = timedelta(0)
ROWS = list(Removable)[1:]


class KilledError(BaseException):
    """Ends a retention at one of its steps."""


@dataclass
class Lake:
    """A lake with dead letters that were closed, and others, conflicts and late rows."""

    settings: Settings
    landing: Landing
    session_of: SessionOf

    def retain(self, *what: Removable, **options: Any) -> Retained:
        (done,) = retain_all(
            self.settings, [STREAM], NOW, None, lambda: self.session_of(self.settings), what=what or ROWS, **options
        )
        return done

    def removed(self, *what: Removable, **options: Any) -> dict[str, int]:
        return {each.table: each.removed for each in self.retain(*what, **options).rows}

    def drain(self) -> None:
        if self.landing.kafka:
            drain(self.settings, self.session_of, "kafka")
        else:
            drain_files(self.settings, self.session_of)

    def replay(self, wanted: Replay | None = None) -> None:
        replay(self.settings, self.session_of, wanted or Replay(salvage=True))

    def expired(self) -> dict[str, int]:
        catalog = open_catalog(self.settings)
        return {name: expired_of(catalog.load_table(name).properties).rows for name in EXPIRED}

    def check(self, expired: dict[str, int], *kinds: Kind) -> None:
        """Verify is clean, and says how many rows have expired."""
        for kind in kinds or (Kind.NEW, Kind.ALL, Kind.NEW):
            found = verify(self.settings, kind=kind)
            check_clean(found)
            (removals,) = found.of("removals")
            assert {each["table"]: each["rows"] for each in removals.facts["expired"]} == expired
            (replays,) = found.of("replays")
            if kind is Kind.ALL:
                facts = replays.facts
                assert (facts["open"], facts["parked"], facts["closed"]) == (1, 1, 4)

    def faults(self) -> set[tuple[str, str]]:
        results = [result for each in verify(self.settings).results.values() for result in each]
        return {(each.place, each.what) for result in results for each in result.faults}


@pytest.fixture(scope="module", params=["files", pytest.param("kafka", marks=pytest.mark.long)])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, session_of: SessionOf) -> Lake:
    """A lake of each source, before anything has expired."""
    kafka: KafkaServer | None = request.getfixturevalue("kafka") if request.param == "kafka" else None
    home = tmp_path_factory.mktemp("retained")
    landing = Landing(kafka, kafka.new_topic() if kafka else "")
    folders = {"LAKE_HOME": home, "LAKE_CONTRACTS": home / "contracts", "LAKE_GOLD": home / "gold"}
    made = Lake(landing.of(settings_of(folders)), landing, session_of)
    settings = made.settings
    write_contract(settings, right=False)
    cut = batch(order(10), order(11, kind="broken"), order(12))[:-9]
    landing.land([settings], batch(order(1), order(2, kind="used"), b'{"id": "o3"}', order(1, amount=99)), cut)
    made.drain()
    landing.land([settings], batch(order(20), order(21, at=OLD)), batch(order(22, amount=2**40)))
    made.drain()
    write_contract(settings, right=True)
    apply(settings)
    with pytest.MonkeyPatch.context() as patch:
        crash_before(patch)(1)
        with pytest.raises(LakeproofError, match="crashed, as asked"):
            made.replay()
    # Attempts have closed them, but their records are not in bronze.
    assert made.removed(Removable.DEAD_LETTERS) == {LETTERS: 0}
    made.replay()
    fix = home / "fix.py"
    fix.write_text("def transform(raw, letter):\n    return raw.replace(b'broken', b'used')\n")
    made.replay(Replay(transform=read_transform(fix)))
    check_clean(verify(settings))
    return made


@pytest.fixture(scope="module")
def lake(filled: Lake) -> Lake:
    """The lake, after a retention that was killed, and then repeated."""
    settings = filled.settings
    before = {table: content(settings, table) for table in EXPIRED}
    back_up(settings, folder_at(settings, None), timedelta(days=1))
    assert filled.removed(dry_run=True) == EXPIRED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removing, "_publish", _kill)
        with pytest.raises(KilledError):
            filled.retain()
    assert {table: content(settings, table) for table in EXPIRED} == before
    check_clean(verify(settings, kind=Kind.NEW))
    with pytest.MonkeyPatch.context() as patch:
        commit = appending._commit

        def lost(transaction: Any) -> None:
            commit(transaction)
            commit(transaction)  # as if the answer was lost, and the catalog was asked again

        patch.setattr(appending, "_commit", lost)
        assert filled.removed() == EXPIRED
    return filled


def _kill(*_: object) -> None:
    raise KilledError


def test_what_has_expired_is_accounted_for(lake: Lake) -> None:
    assert lake.expired() == EXPIRED
    assert {row["_position"] for row in rows(lake.settings, LETTERS)} == {2}
    assert rows(lake.settings, CONFLICTS) == rows(lake.settings, LATE) == []
    lake.check(EXPIRED)
    done = lake.retain()  # once more
    assert [each.removed for each in done.rows] == [0, 0, 0]
    assert "  dead_letters.orders: 0 rows older than 0 days removed." in list(lines([done], dry_run=False))
    assert json.loads(as_json([done]))[0]["rows"][0] == {
        "table": LETTERS,
        "older_than": "0 days",
        "removed": 0,
        "kept": "",
    }
    assert lake.expired() == EXPIRED


def test_the_page_counts_what_has_expired(lake: Lake) -> None:
    page = collect(lake.settings, [STREAM])
    assert page.wrong == []
    (stream,) = page.streams
    values = {name: number.value for name, number in stream.numbers.items()}
    assert {"open": 2, "closed": 4, "conflicts": 1, "late": 1}.items() <= values.items()
    with connect(lake.settings) as session:
        for name in ("open", "closed", "conflicts", "late", "duplicates"):
            number = stream.numbers[name]
            ((counted,),) = session.fetch(f"SELECT {number.counted} FROM ({number.rows})")
            assert counted == number.value, name


def test_faults_are_found_beside_what_has_expired(lake: Lake) -> None:
    spark = lake.session_of(lake.settings)
    snapshots = {}
    for name in (LETTERS, LATE):
        table = open_catalog(lake.settings).load_table(name)
        snapshot = table.current_snapshot()
        assert snapshot
        snapshots[name] = snapshot.snapshot_id
        older = next(each for each in table.snapshots() if each.snapshot_id == _before_removal(table))
        spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {older.snapshot_id})")
    try:
        # They are back, and the account, a property, still has them.
        found = lake.faults()
        assert {(LETTERS, STILL_THERE), (LATE, STILL_THERE), (LATE, OTHER_THAN_BOOKED)} <= found
        assert {each.kept for each in lake.retain().rows} == {UNEVEN, ""}
    finally:
        for name, snapshot_id in snapshots.items():
            spark.sql(f"CALL lake.system.set_current_snapshot('{name}', {snapshot_id})")
    account = open_catalog(lake.settings).load_table(LETTERS).properties["lakeproof.expired"]
    less = Expired(**(json.loads(account) | {"rows": EXPIRED[LETTERS] - 1}))
    for value, is_wrong in ((less.as_text(), True), (account, False)):
        with open_catalog(lake.settings).load_table(LETTERS).transaction() as transaction:
            transaction.set_properties({"lakeproof.expired": value})
        found = lake.faults()
        assert ((LETTERS, NOT_ACCOUNTED) in found) == bool(found) == is_wrong


def _before_removal(table: Any) -> int:
    removals = (each for each in table.snapshots() if "lakeproof.removed" in each.summary.additional_properties)
    return int(next(removals).parent_snapshot_id)


def test_whoever_comes_second_is_refused(lake: Lake) -> None:
    database = lake.settings.state.database
    with lease(database, f"retention.{STREAM}"), pytest.raises(LeaseHeldError):
        lake.retain()


def test_the_stream_goes_on_and_silver_is_filled_again(lake: Lake) -> None:
    settings = lake.settings
    lake.landing.land([settings], batch(order(30), order(20, amount=5)), batch(order(31, kind="broken")))
    lake.drain()
    lake.replay()  # what has expired is not tried again
    assert len([row for row in rows(settings, f"{LETTERS}_attempts") if row["_position"] == 1]) == 3
    for layer in layers_of(asked_to_run(settings, [STREAM], None)):
        rebuild(settings, layer, lambda: lake.session_of(settings))
    assert lake.expired() == {LETTERS: 4, CONFLICTS: 0, LATE: 0}
    found = verify(settings)
    check_clean(found)
    assert lake.removed() == {LETTERS: 0, CONFLICTS: 2, LATE: 1}
    check_clean(verify(settings, kind=Kind.NEW))
    check_clean(verify(settings))


def test_an_older_backup_brings_it_back(lake: Lake) -> None:
    settings = lake.settings
    _, folder = next(folder_at(settings, None).backups())
    restore(settings, folder, accept_loss=True)
    assert lake.expired() == dict.fromkeys(EXPIRED, 0)
    found = verify(settings)
    assert not [each for each in found.of("replays") if not each.clean]
    assert lake.removed() == EXPIRED
