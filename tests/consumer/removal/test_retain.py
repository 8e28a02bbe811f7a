"""``consumer retain``: which landed files are removed or archived, and which stay."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from structlog.testing import capture_logs
from tests.consumer.lake import Drain, SessionOf, rows
from tests.consumer.replays import STREAM, batch, drain, land, order, replay, verify, write_contract
from tests.lakes import changed
from tests.messages import send
from tests.servers import KafkaServer

from consumer.cli import app
from consumer.iceberg.marker import Committed, Marker, property_of
from consumer.queries.bulletin import Bulletin
from consumer.queries.maintenance import MaintenanceQuery
from consumer.removal import retain_files as module
from consumer.removal.retain import retain_all
from consumer.removal.retain_files import (
    CHANGED,
    NEEDED,
    NOT_READ,
    TAKEN,
    UNEVEN,
    UNSAFE,
    Retained,
    remove_files,
    retain,
)
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import load_contract
from lakeproof.errors import UsageError
from lakeproof.landing.root import archives_of, record_landing_root
from lakeproof.landing.zone import landing_zone, zone_at
from lakeproof.settings import S3Settings, Settings
from lakeproof.state.lease import LeaseHeldError
from lakeproof.storage import StoredFile
from lakeproof.storage.local import LocalStorage
from lakeproof.tables.schemas import ensure_attempts, ensure_tables
from reader.verify.findings import Status

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
MONTH = timedelta(days=30)
YEAR_AGO = time.time() - 365 * 86_400
LETTER: dict[str, object] = {"_position": 0, "raw": None, "_landed_at": datetime.fromtimestamp(YEAR_AGO, UTC)}
"""A dead letter without its bytes, which landed a year ago."""


@pytest.fixture
def settings(lake_settings: Settings, tmp_path: Path) -> Settings:
    changes = {"LAKE_CONTRACTS": tmp_path / "contracts", "LAKE_GOLD": tmp_path / "gold"}
    settings = changed(lake_settings, **changes)
    write_contract(settings, right=True)
    return settings


def land_old(settings: Settings, name: str, value: bytes) -> Path:
    """Land a file that is a year old."""
    land(settings, name, value)
    path = settings.home / "landing" / STREAM / name
    os.utime(path, (YEAR_AGO, YEAR_AGO))
    return path


def landed(settings: Settings) -> dict[str, bytes]:
    """Return the files in the landing zone."""
    zone = landing_zone(settings, STREAM)
    return {name: zone.storage.read(file.uri) for name, file in zone.list()}


def statuses(settings: Settings) -> dict[str, str]:
    """Return the status of each file for which verify reports one."""
    return {finding.place: finding.what for finding in verify(settings).landed.findings}


@pytest.fixture
def filled(settings: Settings, drain_directly: Drain) -> Settings:
    """Return settings of a stream with two old files and a new one."""
    land_old(settings, "2026/1.json", batch(order(1), order(2, kind="old"), order(3)))
    land_old(settings, "2026/100%.json", b"garbage")
    land(settings, "new.json", batch(order(4)))
    os.utime(settings.home / "landing" / STREAM / "new.json")
    drain_directly(settings, STREAM)
    return settings


def test_old_files_that_the_tables_hold_are_removed(filled: Settings, drain_directly: Drain) -> None:
    land_old(filled, "late.json", batch(order(5)))  # not read yet
    land_old(filled, "_hidden.json", b"{}")
    before = landed(filled)
    asked = retain(filled, STREAM, MONTH, dry_run=True)
    assert (asked.files, asked.removed, asked.kept) == (4, 2, {NOT_READ: 1})
    assert asked.bytes == len(before["2026/1.json"]) + len(b"garbage")
    assert landed(filled) == before
    assert retain(filled, STREAM, MONTH) == asked
    assert landed(filled).keys() == {"late.json", "new.json", "_hidden.json"}
    drain_directly(filled, STREAM)
    found = verify(filled)
    assert found.clean
    assert statuses(filled) == {
        "2026/1.json": Status.EXPIRED,
        "2026/100%25.json": Status.EXPIRED,
    }
    assert len(rows(filled, f"bronze.{STREAM}")) == 4
    assert retain(filled, STREAM, MONTH).removed == 1  # late.json
    # A file that returns under its name is not read again.
    land_old(filled, "2026/1.json", before["2026/1.json"])
    drain_directly(filled, STREAM)
    assert len(rows(filled, f"bronze.{STREAM}")) == 4
    assert verify(filled).clean


def test_what_is_in_doubt_stays(filled: Settings) -> None:
    landing = filled.home / "landing" / STREAM
    (landing / "2026" / "100%.json").write_bytes(b"GARBAGE")  # of the same size
    os.utime(landing / "2026" / "100%.json", (YEAR_AGO + 1, YEAR_AGO + 1))
    open_catalog(filled).load_table(f"bronze.{STREAM}").delete("_source = '2026/1.json' AND _position = 2")
    done = retain(filled, STREAM, MONTH)
    assert (done.removed, done.kept) == (0, {CHANGED: 1, UNEVEN: 1})
    (landing / "2026" / "100%.json").write_bytes(b"more garbage")
    os.utime(landing / "2026" / "100%.json", (YEAR_AGO, YEAR_AGO))
    assert retain(filled, STREAM, MONTH).kept == {CHANGED: 1, UNEVEN: 1}
    assert len(landed(filled)) == 3


def test_a_copy_with_another_time_is_what_was_read(filled: Settings) -> None:
    for path in (filled.home / "landing" / STREAM / "2026").iterdir():
        os.utime(path, (YEAR_AGO + 5, YEAR_AGO + 5))  # as after a restore
    assert retain(filled, STREAM, MONTH).removed == 2


def test_a_file_that_changes_meanwhile_stays(filled: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = module._whole

    def overwrite(*args: object) -> Callable[[str], str | None]:
        land_old(filled, "2026/1.json", batch(order(9)))
        return whole(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_whole", overwrite)
    done = retain(filled, STREAM, MONTH)
    assert (done.removed, done.kept) == (1, {CHANGED: 1})
    assert landed(filled)["2026/1.json"] == batch(order(9))


def test_files_are_archived_before_they_are_removed(
    filled: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"
    before = landed(filled)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "remove", _killed)
        with pytest.raises(KeyboardInterrupt):
            retain(filled, STREAM, MONTH, str(archive))
    assert landed(filled) == before
    assert (archive / STREAM / "2026" / "1.json").read_bytes() == before["2026/1.json"]
    (archive / STREAM / "2026" / "100%.json").write_bytes(b"of somebody else")
    done = retain(filled, STREAM, MONTH, str(archive))
    assert (done.removed, done.kept) == (1, {TAKEN: 1})
    (archive / STREAM / "2026" / "100%.json").unlink()
    assert retain(filled, STREAM, MONTH, str(archive)).removed == 1
    assert (archive / STREAM / "2026" / "100%.json").read_bytes() == b"garbage"
    assert verify(filled).clean


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_archives_that_would_land_again_are_refused(filled: Settings) -> None:
    for inside in (filled.home / "landing", filled.home / "landing" / STREAM / "old"):
        with pytest.raises(UsageError, match="would land again"):
            retain(filled, STREAM, MONTH, str(inside))
    assert len(landed(filled)) == 3


@pytest.mark.parametrize("archive", ["", f"{STREAM}/bronze", f"{STREAM}/ledger/{STREAM}/data"])
def test_archives_whose_files_would_be_orphans_of_a_table_are_refused(
    settings: Settings, tmp_path: Path, archive: str
) -> None:
    settings = changed(settings, LAKE_WAREHOUSE=tmp_path / "warehouses" / STREAM)
    path = land_old(settings, "1.json", b"[]")
    book(settings, STREAM, ["1.json"])
    with pytest.raises(UsageError, match="where maintenance removes each file"):
        retain(settings, STREAM, MONTH, str(tmp_path / "warehouses" / archive))
    assert path.exists()


def test_an_error_of_one_stream_does_not_hide_the_others(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = ["events", "clickstream", "sensors"]

    def files(_: Settings, stream: str, *__: object, **___: object) -> Retained:
        if stream == "events":
            raise UsageError("events comes from the topic events.")
        if stream == "clickstream":
            raise LeaseHeldError("retention.clickstream", "another retention")
        return Retained(stream, "30 days", None, removed=3)

    monkeypatch.setattr("consumer.removal.retain.retain", files)
    done = retain_all(lake_settings, streams, MONTH, None, _no_session)
    assert [(bool(each.problem), each.removed) for each in done] == [(True, 0), (True, 0), (False, 3)]
    with pytest.raises(UsageError, match="comes from the topic"):
        retain_all(lake_settings, ["events"], MONTH, None, _no_session)


def _no_session() -> SparkSession:
    raise AssertionError


def test_a_contract_without_retention_is_refused_before_anything_is_removed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_retention(settings)
    (settings.contracts / "events.yaml").write_bytes((ROOT / "contracts" / "events.yaml").read_bytes())
    monkeypatch.setattr("consumer.removal.retain.retain", lambda *_, **__: _no_session())
    with pytest.raises(UsageError, match="contract of events does not say how long"):
        retain_all(settings, [STREAM, "events"], None, None, _no_session)


def test_files_that_another_stream_has_not_read_yet_stay(settings: Settings, tmp_path: Path) -> None:
    text = (settings.contracts / f"{STREAM}.yaml").read_text()
    shared = tmp_path / "shared"
    for stream, globs, below in (
        ("a", "['*.json']", ""),
        ("b", "['[12].json', '4.json']", ""),
        ("c", "['*']", "/deep"),
    ):
        address = f"servers:\n  - {{server: landing, type: local, path: {shared}{below}}}\n"
        landing = f"customProperties:\n  - {{property: landing, value: {{include: {globs}}}}}\n"
        own = text.replace(STREAM, stream).replace("customProperties:\n", address + landing)
        (settings.contracts / f"{stream}.yaml").write_text(own)
    names = ["1.json", "2.json", "3.json", "deep/4.json"]
    for name in names:
        (shared / name).parent.mkdir(parents=True, exist_ok=True)
        (shared / name).write_bytes(b"[]")
        os.utime(shared / name, (YEAR_AGO, YEAR_AGO))
    book(settings, "a", names)
    book(settings, "b", ["1.json"])
    done = retain(settings, "a", MONTH, in_source=True)
    assert (done.removed, done.kept) == (2, {"not in the ledger of b yet": 1, "not in the ledger of c yet": 1})
    assert sorted(path.name for path in shared.rglob("*.json")) == ["2.json", "4.json"]


def test_an_archive_is_recorded_before_the_first_copy(settings: Settings, tmp_path: Path) -> None:
    land_old(settings, "1.json", b"[]")
    book(settings, STREAM, ["1.json"])

    def recorded() -> list[str]:
        return archives_of(open_catalog(settings).load_table(f"ledger.{STREAM}").properties)

    retain(settings, STREAM, MONTH, str(tmp_path / "first"), dry_run=True)
    assert recorded() == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStorage, "write_new", _killed)
        with pytest.raises(KeyboardInterrupt):
            retain(settings, STREAM, MONTH, str(tmp_path / "first"))
    assert recorded() == [f"file://{tmp_path}/first/{STREAM}"]
    for _ in range(2):
        retain(settings, STREAM, MONTH, str(tmp_path / "second"))
        land_old(settings, "1.json", b"[]")
    assert recorded() == [f"file://{tmp_path}/{name}/{STREAM}" for name in ("first", "second")]


def test_files_that_were_excluded_after_they_were_read_are_removed(settings: Settings) -> None:
    names = ["1.json", "2.json", "3.json"]
    for name in names:
        land_old(settings, name, b"[]")
    book(settings, STREAM, names[:2])
    path = settings.contracts / f"{STREAM}.yaml"
    excluded = "customProperties:\n  - {property: landing, value: {exclude: ['*.json']}}\n"
    path.write_text(path.read_text().replace("customProperties:\n", excluded))
    done = retain(settings, STREAM, MONTH, only={"1.json", "3.json"})
    assert (done.removed, done.kept) == (1, {NOT_READ: 1})
    done = retain(settings, STREAM, MONTH)
    assert (done.files, done.removed, done.kept) == (1, 1, {})
    assert landed(settings).keys() == {"3.json"}


def test_files_that_another_stream_needs_for_a_replay_stay(settings: Settings, tmp_path: Path) -> None:
    text, shared = (settings.contracts / f"{STREAM}.yaml").read_text(), tmp_path / "shared"
    for stream in ("a", "b"):
        address = f"servers:\n  - {{server: landing, type: local, path: {shared}}}\ncustomProperties:\n"
        (settings.contracts / f"{stream}.yaml").write_text(
            text.replace(STREAM, stream).replace("customProperties:\n", address)
        )
    shared.mkdir()
    for name in ("large.json", "small.json", "uneven.json"):
        (shared / name).write_bytes(b"[]")
        os.utime(shared / name, (YEAR_AGO, YEAR_AGO))
        for stream in ("a", "b"):
            book(settings, stream, [name], {"uneven.json": 1}.get(name, 0) if stream == "b" else 0)
    append(open_catalog(settings), "dead_letters.b", [{"_source": "large.json"} | LETTER])
    done = retain(settings, "a", MONTH, in_source=True)
    assert (done.removed, done.kept) == (1, {f"{NEEDED} (stream b)": 1, f"{UNEVEN} (stream b)": 1})
    assert sorted(path.name for path in shared.iterdir()) == ["large.json", "uneven.json"]


def test_a_file_stays_until_the_ledger_has_the_replay_that_reads_it(settings: Settings) -> None:
    land_old(settings, "large.json", b"[]")
    book(settings, STREAM, ["large.json"], dead_letters={"batch_too_large": 1})
    catalog = open_catalog(settings)
    append(catalog, f"dead_letters.{STREAM}", [{"_source": "large.json"} | LETTER])
    ensure_attempts(catalog, STREAM)
    attempt = {"_source": "large.json", "_position": 0, "_letter": 1, "replay": 2, "outcome": "closed"}
    append(catalog, f"dead_letters.{STREAM}_attempts", [attempt])
    mark(settings, replays=1)  # as if killed before its next commit, to bronze
    done = retain(settings, STREAM, MONTH)
    assert (done.removed, done.kept) == (0, {NEEDED: 1})
    mark(settings, replays=2)
    assert retain(settings, STREAM, MONTH).removed == 1


def mark(settings: Settings, replays: int) -> None:
    """Set the marker of the ledger to one with a number of replays."""
    ledger = open_catalog(settings).load_table(f"ledger.{STREAM}")
    snapshot = ledger.current_snapshot()
    assert snapshot
    newest = Committed(Marker("", 0, "", "1", "1", replays=replays), snapshot.snapshot_id, sequence_number=1)
    with ledger.transaction() as changes:
        changes.set_properties({property_of(bronze_query(STREAM)): newest.as_text()})


def append(catalog: Catalog, name: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Append rows to a table; columns that they lack are null."""
    table = catalog.load_table(name)
    with table.update_schema(allow_incompatible_changes=True) as update:
        for column in table.schema().fields:
            update.make_column_optional(column.name)
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def book(
    settings: Settings,
    stream: str,
    names: Sequence[str],
    bronze: int = 0,
    dead_letters: Mapping[str, int] | None = None,
) -> None:
    """Add files, which landed a year ago, to the ledger of a stream."""
    catalog, zone = open_catalog(settings), landing_zone(settings, stream, {})
    ensure_tables(catalog, load_contract(settings.contracts, stream))
    record_landing_root(catalog, stream, zone)
    files = {name: file for name in names if (file := zone.stat(name))}
    same = {"bronze": bronze, "dead_letters": dead_letters or {}, "landed_at": LETTER["_landed_at"]}
    append(
        catalog,
        f"ledger.{stream}",
        [{"source": name, "size": file.size, "etag": file.etag} | same for name, file in files.items()],
    )


@pytest.mark.parametrize("key", ["events//../../contracts/planted.yaml", "events/./a.json", "events/x/../../a.json"])
def test_a_key_that_a_file_system_would_resolve_is_not_archived(tmp_path: Path, key: str) -> None:
    """A bucket of others may have such keys; a local archive would have the file elsewhere, perhaps outside."""
    zone, archive = zone_at("s3://landing/events", S3Settings()), zone_at(f"{tmp_path.as_uri()}/archive", S3Settings())
    uri = f"s3://landing/{key}"
    file, source = StoredFile(uri, 2, "tag", datetime.now(UTC)), module._Source(etag="tag")
    object.__setattr__(zone, "storage", SimpleNamespace(read=lambda *_: b"[]"))  # MinIO refuses such keys
    assert module._take(zone, archive, zone.name_of(uri), file, source, dry_run=False) == UNSAFE
    assert [*tmp_path.rglob("*")] == []


def test_nothing_outside_of_an_archive_is_removed(tmp_path: Path) -> None:
    archive = zone_at(f"{tmp_path.as_uri()}/archive", S3Settings())
    for name in ("catalog.db", "archive/linked/a.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert remove_files(archive, ["/../catalog.db", "x/../../catalog.db", "linked/./a.json"]) == 0
    assert remove_files(archive, ["/linked/a.json"]) == 1
    assert (tmp_path / "catalog.db").exists()


@pytest.mark.all
def test_retention_in_a_bucket(s3_lake_settings: Settings, tmp_path: Path, session_of: SessionOf) -> None:
    changes = {"LAKE_CONTRACTS": tmp_path / "contracts", "LAKE_GOLD": tmp_path / "gold"}
    settings = changed(s3_lake_settings, **changes).model_copy(update={"s3": s3_lake_settings.s3})
    write_contract(settings, right=True)
    zone = landing_zone(settings, STREAM)
    whole = {"a b.json": batch(order(1), order(2)), "2.json": batch(order(3))}
    for name, value in whole.items():
        zone.storage.write_new(zone.uri_of(name), value)
    drain(settings, session_of)
    assert retain(settings, STREAM, MONTH).removed == 0
    time.sleep(1.1)  # the minimum age
    archive = settings.landing.uri.replace("/landing", "/archive")
    assert retain(settings, STREAM, timedelta(seconds=1), archive).removed == 2
    assert landed(settings) == {}
    copies = landing_zone(changed(settings, LAKE_LANDING=archive).model_copy(update={"s3": settings.s3}), STREAM)
    assert {name: copies.storage.read(file.uri) for name, file in copies.list()} == whole
    assert verify(settings).clean


@pytest.mark.all
def test_units_that_are_only_in_a_landed_file_keep_it(settings: Settings, session_of: SessionOf) -> None:
    small = changed(settings, LAKE_MAX_RECORD_BYTES=200)
    land_old(settings, "1.json", batch(order(0), order(1, note="x" * 300)))
    land_old(settings, "2.json", batch(order(2)))
    drain(small, session_of)
    done = retain(settings, STREAM, MONTH)
    assert (done.removed, done.kept) == (1, {NEEDED: 1})
    replay(settings, session_of)
    assert retain(settings, STREAM, MONTH).removed == 1
    found = verify(settings)
    assert found.clean, found.off
    assert statuses(settings) == {"1.json": Status.EXPIRED, "2.json": Status.EXPIRED}


@pytest.mark.all
def test_a_stream_of_a_topic_is_refused(settings: Settings, session_of: SessionOf, kafka: KafkaServer) -> None:
    topic = kafka.new_topic()
    changes = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "LAKE_KAFKA_TOPIC": topic}
    settings = changed(settings, LAKE_KAFKA_STARTING_OFFSETS="earliest", **changes)
    send(kafka, topic, [order(1)])
    drain(settings, session_of, "kafka")
    with pytest.raises(UsageError, match=f"comes from the topic {topic}") as refused:
        retain(settings, STREAM, MONTH)
    assert "retention.ms" in refused.value.hint


def test_how_long_is_said_by_the_contract_or_by_the_command(
    filled: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("consumer.cli.removal.load_settings", lambda: filled)

    def said(*arguments: str) -> str:
        app(["retain", *arguments], standalone_mode=False)
        return capsys.readouterr().out

    with pytest.raises(UsageError, match="No contract says how long landed files are kept"):
        said()
    with pytest.raises(UsageError, match="does not say how long"):
        said(STREAM)
    assert "2 of 3 landed files would be removed" in said(STREAM, "--older-than", "30d", "--dry-run")
    write_retention(filled)
    assert "older than 100 days" in said("--dry-run")
    (found,) = json.loads(said("--json"))
    assert (found["stream"], found["removed"], found["kept"], found["problem"]) == (STREAM, 2, {}, "")


def test_a_consumer_that_maintains_retains_by_the_contract(
    filled: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    query, bulletin = MaintenanceQuery(filled, [STREAM]), Bulletin()
    query.retain(spark, bulletin)
    assert len(landed(filled)) == 3
    write_retention(filled)
    bulletin.stop()
    query.retain(spark, bulletin)
    assert len(landed(filled)) == 3
    bulletin.is_stopping = False
    (tmp_path / "taken").write_text("no folder")
    write_retention(filled, f", archive: {tmp_path}/taken")
    (filled.contracts / "a.yaml").write_text((filled.contracts / f"{STREAM}.yaml").read_text().replace(STREAM, "a"))
    with capture_logs() as logged:  # one stream has no tables, and the archive of the other cannot be written
        MaintenanceQuery(filled, ["a", STREAM]).retain(spark, bulletin)
    assert [(each["event"], each["log_level"], each["stream"]) for each in logged] == [
        ("retention failed", "warning", "a"),
        ("retention failed", "warning", STREAM),
    ]
    write_retention(filled)
    query.retain(spark, bulletin)
    assert landed(filled).keys() == {"new.json"}


def write_retention(settings: Settings, more: str = "") -> None:
    write_contract(settings, right=True)
    path = settings.contracts / f"{STREAM}.yaml"
    retention = f"  - {{property: retention, value: {{landed: 100 days{more}}}}}\nschema:\n"
    path.write_text(path.read_text().replace("schema:\n", retention))
