"""``consumer retain --of``: expired rows are removed and accounted for, and everything else is unchanged."""

import itertools
import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from py4j.protocol import Py4JError
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
    order,
    replay,
    verify,
    write_contract,
)
from tests.lakes import changed
from tests.lost_answers import PostgresProxy
from tests.servers import PASSWORD, KafkaServer, Minio, PostgresServer

from consumer.iceberg import append as appending
from consumer.iceberg import remove as removing
from consumer.layers.bronze.letters import Choice
from consumer.layers.bronze.replay import Replay
from consumer.layers.bronze.transform import read_transform
from consumer.layers.rebuild import rebuild
from consumer.layers.registry import layers_of
from consumer.removal.condition import Condition, read_condition
from consumer.removal.erase import erase
from consumer.removal.retain import as_json, lines, retain_all
from consumer.removal.retain_files import Retained
from consumer.removal.retain_rows import UNEVEN
from consumer.scope import scope_of_run
from lakeproof.backup.manifest import folder_at
from lakeproof.backup.restore import restore
from lakeproof.backup.take import back_up
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.contracts.model import Removable
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import Settings, settings_of
from lakeproof.state.lease import LeaseHeldError, lease
from lakeproof.state.proofs import ProofKind
from lakeproof.tables.expired import Expired, expired_of
from reader.connect import connect
from reader.page.collect import collect
from reader.verify.book.book import OTHER_THAN_BOOKED
from reader.verify.checks.removals import NOT_ACCOUNTED, STILL_THERE

pytestmark = [pytest.mark.spark, pytest.mark.all]

LETTERS, CONFLICTS, LATE = f"dead_letters.{STREAM}", f"silver.{STREAM}_conflicts", f"silver.{STREAM}_late"
EXPIRED = {LETTERS: 4, CONFLICTS: 1, LATE: 1}
OLD = "2026-09-01T06:00:00Z"  # before the horizon
NOW = timedelta(0)
ROWS = list(Removable)[1:]


class KilledError(BaseException):
    """Raised to end a retention at one of its steps."""


@dataclass
class Lake:
    """Lake with closed and other dead letters, conflicts and late rows."""

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
        drain(self.settings, self.session_of, self.landing.source)

    def replay(self, wanted: Replay | None = None) -> None:
        replay(self.settings, self.session_of, wanted or Replay(salvage=True))

    def expired(self) -> dict[str, int]:
        catalog = open_catalog(self.settings)
        return {name: expired_of(catalog.load_table(name).properties).rows for name in EXPIRED}

    def check(self, expired: dict[str, int], *kinds: ProofKind) -> None:
        """Check that verify finds nothing wrong, and reports the number of expired rows."""
        for kind in kinds or (ProofKind.NEW, ProofKind.ALL):
            found = verify(self.settings, kind=kind)
            check_clean(found)
            (removals,) = found.of("removals")
            assert {each["table"]: each["rows"] for each in removals.facts["expired"]} == expired
            (replays,) = found.of("replays")
            if kind is ProofKind.ALL:
                facts = replays.facts
                assert (facts["open"], facts["parked"], facts["closed"]) == (1, 1, 4)

    def faults(self) -> set[tuple[str, str]]:
        results = [result for each in verify(self.settings).results.values() for result in each]
        return {(each.place, each.what) for result in results for each in result.faults}


@pytest.fixture(scope="module", params=["files", pytest.param("kafka", marks=pytest.mark.long)])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, session_of: SessionOf) -> Lake:
    """Return a lake for each source, before anything has expired."""
    kafka: KafkaServer | None = request.getfixturevalue("kafka") if request.param == "kafka" else None
    home = tmp_path_factory.mktemp("retained")
    return filled_lake({"LAKE_HOME": home}, Landing(kafka, kafka.new_topic() if kafka else ""), session_of)


def filled_lake(own: dict[str, Any], landing: Landing, session_of: SessionOf) -> Lake:
    """Make a lake, let it judge and replay."""
    home = own["LAKE_HOME"]
    folders = {"LAKE_CONTRACTS": home / "contracts", "LAKE_GOLD": home / "gold"}
    made = Lake(landing.of(settings_of(own | folders)), landing, session_of)
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
    # Attempts have closed the dead letters, but their records are not in bronze.
    assert made.removed(Removable.DEAD_LETTERS) == {LETTERS: 0}
    with pytest.raises(UsageError, match="was interrupted"):
        erase(changed(settings, LAKE_ERASURE_KEY="a" * 16), STREAM, Condition(({"id": "o2"},)), _kill)  # type: ignore[arg-type]
    made.replay()
    fix = home / "fix.py"
    fix.write_text("def transform(raw, letter):\n    return raw.replace(b'broken', b'used')\n")
    made.replay(Replay(transform=read_transform(fix)))
    check_clean(verify(settings))
    return made


@pytest.fixture(scope="module")
def lake(filled: Lake) -> Lake:
    """Return the lake after a retention that was killed, and then repeated."""
    settings = filled.settings
    before = {table: content(settings, table) for table in EXPIRED}
    back_up(settings, folder_at(settings, None), timedelta(days=1))
    assert filled.removed(dry_run=True) == EXPIRED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removing, "_publish", _kill)
        with pytest.raises(KilledError):
            filled.retain()
    assert {table: content(settings, table) for table in EXPIRED} == before
    check_clean(verify(settings, kind=ProofKind.NEW))
    with pytest.MonkeyPatch.context() as patch:
        commit = appending._commit

        def lost(transaction: Any) -> None:
            commit(transaction)
            commit(transaction)  # as if the answer was lost, and the commit sent again

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
        # The rows are back, and the account, a property, still has them.
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
    lake.replay()  # expired dead letters are not tried again
    assert len([row for row in rows(settings, f"{LETTERS}_attempts") if row["_position"] == 1]) == 3
    for layer in layers_of(scope_of_run(settings, [STREAM], None)):
        rebuild(settings, layer, lambda: lake.session_of(settings))
    assert lake.expired() == {LETTERS: 4, CONFLICTS: 0, LATE: 0}
    found = verify(settings)
    check_clean(found)
    assert lake.removed() == {LETTERS: 0, CONFLICTS: 2, LATE: 1}
    check_clean(verify(settings, kind=ProofKind.NEW))
    check_clean(verify(settings))


def test_an_older_backup_brings_it_back(lake: Lake) -> None:
    settings = lake.settings
    _, folder = next(folder_at(settings, None).backups())
    restore(settings, folder, accept_loss=True)
    assert lake.expired() == dict.fromkeys(EXPIRED, 0)
    found = verify(settings)
    assert not [each for each in found.of("replays") if not each.clean]
    assert lake.removed() == EXPIRED


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_an_erasure_takes_what_has_expired_into_account(tmp_path: Path, session_of: SessionOf) -> None:
    """One record is an expired dead letter, and the attempts alone have the bytes of the other one."""
    own = {"LAKE_HOME": tmp_path / "lake", "LAKE_ERASURE_KEY": "a key of the operator"}
    made = filled_lake(own, Landing(), session_of)
    settings = made.settings
    assert made.removed() == EXPIRED
    condition = read_condition("id IN ('o2', 'o11')", load_contract(settings.contracts, STREAM))
    done = erase(settings, STREAM, condition, lambda: session_of(settings))
    assert done.rows == {f"bronze.{STREAM}": 2, f"{LETTERS}_attempts": 1}
    assert (done.found_in, done.remains) == ([], [])
    assert done.landed_files == 2
    assert made.expired() == {LETTERS: 4, CONFLICTS: 0, LATE: 0}
    for kind in (ProofKind.NEW, ProofKind.ALL):
        assert not {(place, what) for place, what in made.faults()}, kind
    assert made.removed() == {LETTERS: 0, CONFLICTS: 1, LATE: 1}
    made.landing.land([settings], batch(order(40), order(41, kind="broken")))
    made.drain()
    made.replay()
    assert made.faults() == set()


@pytest.mark.long
@pytest.mark.s3
@pytest.mark.timeout(3600)
def test_retention_in_a_bucket_beside_a_replay_while_answers_are_lost(
    minio: Minio, bucket: str, postgres: PostgresServer, tmp_path: Path, session_of: SessionOf
) -> None:
    """A replay commits between the proof and the commit of each table; every third answer of the catalog is lost."""
    losing, counted = False, itertools.count()
    proxy = PostgresProxy(postgres.port, lambda _: losing and next(counted) % 3 == 0)
    own = {
        "LAKE_HOME": tmp_path / "lake",
        "LAKE_LANDING": f"s3://{bucket}/landing",
        "LAKE_WAREHOUSE": f"s3://{bucket}/warehouse",
        "LAKE_CATALOG_URI": proxy.through(postgres.new_database(PASSWORD)),
        **minio.environment(),
    }
    made = filled_lake(own, Landing(), session_of)
    publish, fix = removing._publish, tmp_path / "mend.py"
    fix.write_text("def transform(raw, letter):\n    return raw.replace(b'broken', b'used')\n")
    for each in range(3):
        made.landing.land([made.settings], batch(order(50 + each, kind="broken"), order(60 + each)))
    made.drain()
    replayed = 0

    def beside_a_replay(*arguments: Any) -> int:
        nonlocal replayed, losing
        losing = False
        made.replay(Replay(Choice(limit=1), transform=read_transform(fix)))
        replayed += 1
        losing = True
        return publish(*arguments)

    refused: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removing, "_publish", beside_a_replay)
        for _ in range(10):
            losing = True
            try:
                done = made.retain()
                if not done.problem and {each.kept for each in done.rows} == {""}:
                    break
                refused.append(done.problem)
            except Py4JError as error:
                refused.append(str(error))
            finally:
                losing = False
        else:
            raise AssertionError(refused)
    structlog.get_logger().info("retained", replayed=replayed, lost=len(proxy.lost), refused=refused)
    assert replayed >= 3
    assert len(proxy.lost) >= 3
    expired = made.expired()
    assert expired[LETTERS] in range(4, 4 + replayed + 1)
    assert (expired[CONFLICTS], expired[LATE]) == (1, 1)
    assert made.faults() == set()
    made.removed()
    (replays,) = verify(made.settings, kind=ProofKind.ALL).of("replays")
    assert made.expired()[LETTERS] == replays.facts["closed"] > 4
    assert made.faults() == set()
    proxy.close()
