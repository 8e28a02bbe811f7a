"""``consumer erase`` removes a person from every file; all other data is as if the person had never landed."""

import errno
import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.consumer.erasures import PERSON, STREAM, TABLES, Lakes, batch, lakes_of, same, traces, visit
from tests.consumer.lake import SessionOf
from tests.consumer.replays import check_clean, verify
from tests.lakes import changed
from tests.selection import first_by_default
from tests.servers import KafkaServer, free_port

from consumer.maintenance.maintain import LEASE
from consumer.removal import erase as module
from consumer.removal.certificate import Erased, as_json, lines
from consumer.removal.condition import Condition
from consumer.removal.erase import erase
from consumer.removal.places import Places
from consumer.removal.search import find_rows
from consumer.scope import scope_of_run
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import UsageError
from lakeproof.holds import hold, release
from lakeproof.landing.root import record_archive
from lakeproof.settings import Settings
from lakeproof.state.breaker_log import BreakerLog, QueryKind
from lakeproof.state.contract_log import ContractLog
from lakeproof.state.lease import LeaseHeldError, alerts_lease, lease
from lakeproof.state.proofs import ProofKind
from lakeproof.state.sink_positions import SinkPosition, SinkPositions
from lakeproof.tables.names import stream_tables
from lakeproof.tables.schemas import ensure_attempts, ensure_tables
from reader.connect import connect
from reader.page.collect import collect
from reader.verify.book.book import OTHER_THAN_BOOKED
from reader.verify.checks.removals import STILL_THERE
from reader.verify.findings import Status

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
_STORMS = ("Too many bad units", "Conflicts", "Late rows")


class Killed(BaseException):
    """Raised to end an erasure at one of its steps."""


@pytest.fixture(scope="module", params=first_by_default(["files", "kafka"]))
def erased(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, session_of: SessionOf
) -> tuple[Lakes, Erased, Erased]:
    """Return lakes after an erasure that was killed or held up by a reader, and the results of its dry and last run."""
    kafka = request.getfixturevalue("kafka") if request.param == "kafka" else None
    lakes = lakes_of(tmp_path_factory.mktemp("erase"), session_of, kafka)
    lakes.fill()
    settings = lakes.landing.of(lakes.settings)
    check_clean(verify(settings, STREAM))
    before = _files(settings)
    report = lakes.erase(dry_run=True)
    assert _files(settings) == before
    (interrupted if request.param == "files" else held)(lakes, settings)
    return lakes, report, lakes.erase()


def _files(settings: Settings) -> set[Path]:
    """Return the lake's files, without those that SQLite removes when the last connection closes."""
    return {path for path in settings.home.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))}


def interrupted(lakes: Lakes, settings: Settings) -> None:
    """Kill an erasure between two tables, before silver is filled again, and before old snapshots are expired."""
    remove, seen = module.remove, []

    def once(*args: Any) -> Any:
        if seen:
            raise Killed
        seen.append(args)
        return remove(*args)

    for name, stop, of_tables in (
        ("remove", once, {STILL_THERE}),  # the dead letters are removed, and bronze is unchanged
        ("_Erasure._rebuild", _kill, None),
        ("_Erasure._forget", _kill, set()),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"consumer.removal.erase.{name}", stop)
            with pytest.raises(Killed):
                lakes.erase()
        found = verify(settings, STREAM)
        (removals,) = found.of("removals")
        assert "is unfinished" in removals.problems[0]
        assert not found.clean
        if of_tables is not None:
            faults = {each.what for results in found.results.values() for result in results for each in result.faults}
            assert faults == of_tables


def _kill(*_: object) -> None:
    raise Killed


def held(lakes: Lakes, settings: Settings) -> None:
    """Check an erasure while a registered reader keeps a snapshot with the person."""
    catalog, name = open_catalog(settings), f"bronze.{STREAM}"
    hold(catalog, name, "reports", datetime.now(UTC) + timedelta(hours=1))
    done = lakes.erase()
    assert not done.is_complete
    assert "reader reports until" in done.remains[0]
    assert {uri.partition("/warehouse/")[2].split("/")[0] for uri in done.found_in} == {"bronze"}
    (removals,) = verify(settings, STREAM).of("removals")
    assert "is unfinished" in removals.problems[0]
    release(catalog, name, "reports")


def test_nothing_of_the_person_is_left(erased: tuple[Lakes, Erased, Erased]) -> None:
    lakes, report, done = erased
    assert report.rows == done.rows
    assert done.found_in == []
    assert done.remains == []
    assert done.completed_at
    assert traces(lakes.settings) == []
    assert report.batches == (2 if lakes.landing.kafka else 1)


def test_everything_else_is_as_if_they_had_never_landed(erased: tuple[Lakes, Erased, Erased]) -> None:
    lakes, _, _ = erased
    for table in (*TABLES, "gold.spent"):
        assert same(lakes.settings, table) == same(lakes.control, table), table
    assert same(lakes.settings, "silver.visits_conflicts")
    assert same(lakes.settings, "silver.visits_late")


@pytest.mark.all
def test_verify_says_erased(erased: tuple[Lakes, Erased, Erased]) -> None:
    lakes, _, done = erased
    settings = lakes.landing.of(lakes.settings)
    for kind in (ProofKind.NEW, ProofKind.ALL):
        found = verify(settings, STREAM, kind=kind)
        check_clean_of_erased(found)
        (removals,) = found.of("removals")
        assert {each["table"]: each["rows"] for each in removals.facts["removed"]} == done.rows
    # The next run continues.
    lakes.landing.land([lakes.settings], batch(visit(50)))
    lakes.drain(lakes.settings)
    check_clean_of_erased(verify(settings, STREAM, kind=ProofKind.NEW))
    assert lakes.erase().rows == {}


def check_clean_of_erased(found: Any) -> None:
    results = [result for each in found.results.values() for result in each]
    wrong = [(result.name, result.faults, result.problems) for result in results if not result.clean]
    assert wrong == [], wrong
    assert Status.ERASED in {finding.what for finding in found.landed.findings}


def test_the_page_of_the_lake_shows_it(erased: tuple[Lakes, Erased, Erased]) -> None:
    lakes, _, done = erased
    settings = lakes.landing.of(lakes.settings)
    check_clean_of_erased(verify(settings, STREAM))
    page = collect(settings, [STREAM])
    # The contract warns of one bad unit in a hundred; the page finds nothing else wrong.
    assert [found.text for _, found in page.wrong if not found.text.startswith(_STORMS)] == []
    (stream,) = page.streams
    assert stream.numbers["erased"].value == done.rows["bronze.visits"] + done.rows["dead_letters.visits"]
    assert sum(reasons.letters for reasons in stream.reasons) == stream.numbers["open"].value
    with connect(settings) as session:
        for name in ("bronze", "open", "erased", "kept"):
            number = stream.numbers[name]
            ((counted,),) = session.fetch(f"SELECT {number.counted} FROM ({number.rows})")
            assert counted == number.value, name


@pytest.mark.all
def test_faults_are_found_beside_what_was_erased(erased: tuple[Lakes, Erased, Erased]) -> None:
    lakes, _, _ = erased
    settings = lakes.landing.of(lakes.settings)
    table = open_catalog(settings).load_table(f"bronze.{STREAM}")
    rows = table.scan().to_arrow().sort_by([("_micro_batch_id", "ascending"), ("id", "ascending")])
    source, position = removed_place(settings)
    again = rows.slice(3, 1)
    for column, value in (("_source", source), ("_position", position)):
        field = rows.schema.field(column)
        again = again.set_column(rows.schema.get_field_index(column), field, pa.array([value], field.type))
    altered = rows.slice(0, 1)
    field = rows.schema.field("amount")
    altered = altered.set_column(rows.schema.get_field_index("amount"), field, pa.array([999], field.type))
    before = table.current_snapshot()
    assert before
    table.overwrite(pa.concat_tables([altered, rows.slice(2), again]))  # and the second row is missing
    try:
        found = verify(settings, STREAM)
        faults = {each.what for results in found.results.values() for result in results for each in result.faults}
        assert {STILL_THERE, OTHER_THAN_BOOKED} <= faults
        assert faults & {Status.LOST, Status.CHANGED}
    finally:
        spark = lakes.session_of(settings)
        spark.sql(f"CALL lake.system.rollback_to_snapshot('bronze.{STREAM}', {before.snapshot_id})")


def removed_place(settings: Settings) -> tuple[str, int]:
    rows = open_catalog(settings).load_table(f"ledger.{STREAM}_removals").scan("rows > 0").to_arrow().to_pylist()
    row = next(each for each in rows if each["table"] == f"bronze.{STREAM}")
    return row["source"], row["_position"]


def test_the_account_says_nothing_of_the_person(erased: tuple[Lakes, Erased, Erased]) -> None:
    lakes, _, done = erased
    rows = open_catalog(lakes.settings).load_table(f"ledger.{STREAM}_removals").scan().to_arrow().to_pylist()
    assert PERSON not in repr(rows)
    assert {row["keyed_hash"] for row in rows} == {done.keyed_hash}
    certificate = json.loads(as_json(done))
    assert certificate["complete"] is True
    assert PERSON not in repr(certificate)
    assert f"The erasure {done.request} is complete." in list(lines(done, dry_run=False))


def test_another_landing_log_is_refused_before_anything_is_removed(
    erased: tuple[Lakes, Erased, Erased], tmp_path: Path
) -> None:
    lakes, _, _ = erased
    other = replace(lakes, settings=changed(lakes.settings, LAKE_LANDING_LOG_URI=f"sqlite:///{tmp_path}/other.db"))
    for dry_run in (True, False):
        with pytest.raises(UsageError, match="has no contract of visits") as refused:
            other.erase("user_id = 'karl'", dry_run=dry_run)
        assert "LAKE_LANDING_LOG_URI" in refused.value.hint


def of_a_user(settings: Settings) -> module._Erasure:
    """Return an erasure of a user of the events, which gets no session."""
    return module._Erasure(settings, "events", Condition(({"user_id": "u-1"},)), _kill)  # type: ignore[arg-type]


def test_examples_of_a_paused_stream_are_forgotten(lake_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    ContractLog(lake_settings.state.database).make_current("events", "digest", b"text")
    breakers = BreakerLog(lake_settings.state.database, "events")
    examples = [{"source": "topic/0", "position": 7, "raw": '{"user_id": "u-1", "amount": "?"}'}]
    breakers.pause(QueryKind.STREAM, ("0", "1", "checkpoint"), {"bad": 1, "examples": examples}, None)
    monkeypatch.setattr(module, "find_rows", lambda *_: [])  # nothing of the micro-batch was committed
    monkeypatch.setattr(module, "prepare", lambda _: None)
    condition = Condition(({"user_id": "u-1"},))
    nothing: Any = None
    done = module._Erasure(lake_settings, "events", condition, lambda: nothing).run(
        None, dry_run=False, keep_landed=False, in_source=False
    )
    (trip,) = breakers.paused()
    assert trip.found == {"bad": 1, "examples": []}
    assert done.is_complete
    assert any(each.startswith("Logs of the consumer") for each in done.elsewhere)


def test_folders_of_replaced_tables_are_removed_even_if_no_row_matches(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, rows = open_catalog(lake_settings), pa.table({"user_id": ["u-1"]})
    ensure_tables(catalog, load_contract(lake_settings.contracts, "events"))
    ContractLog(lake_settings.state.database).make_current("events", "digest", b"text")
    catalog.create_namespace("silver")
    table = catalog.create_table("silver.events", rows.schema)
    table.append(rows)
    old = table.location()
    catalog.drop_table("silver.events")  # as a rebuild leaves it once retention has removed the rows
    catalog.create_table("silver.events", rows.schema, location=f"{old}__rebuild_1")
    monkeypatch.setattr(module, "find_rows", lambda *_: [])
    monkeypatch.setattr(module, "prepare", lambda _: None)
    monkeypatch.setattr(module, "why_left", lambda *_: None)
    nothing: Any = None
    done = module._Erasure(lake_settings, "events", Condition(({"user_id": "u-1"},)), lambda: nothing).run(
        None, dry_run=False, keep_landed=False, in_source=False
    )
    assert (done.folders, done.is_complete) == ([old], True)


def test_folders_that_a_server_names_are_removed_after_a_rebuild_or_searched(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, rows = open_catalog(lake_settings), pa.table({"user_id": ["u-1"]})
    silver = f"{lake_settings.catalog.warehouse_uri}/silver"
    catalog.create_namespace("silver")
    ensure_tables(catalog, load_contract(lake_settings.contracts, "events"))
    for folder, name in (("0f3a", "old"), ("1b2c", "older"), ("2d4e", "events")):
        table = catalog.create_table(f"silver.{name}", rows.schema, location=f"{silver}/{folder}")
        if name != "events":
            table.append(rows)
            catalog.drop_table(f"silver.{name}")
    monkeypatch.setattr(module, "why_left", lambda *_: None)
    erasure = of_a_user(lake_settings)
    erasure._replaced = {f"{silver}/0f3a"}
    erasure._remove_replaced()
    assert erasure._done.folders == [f"{silver}/0f3a"]
    erasure._search(keep_landed=False)
    assert {uri.split("/")[-3] for uri in erasure._done.found_in} == {"1b2c"}
    (said,) = erasure._done.remains
    assert said.startswith(f"{silver}/1b2c: no table of this catalog uses it.")


def test_a_product_without_a_table_yet_publishes_nothing(
    lake_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    product = (ROOT / "gold" / "user_activity.yaml").read_text()
    (tmp_path / "user_activity.yaml").write_text(f"{product}publish: final\nsinks: [table, parquet]\n")
    monkeypatch.setattr(module, "exists", lambda _, layer: "silver.events" in layer.tables)
    monkeypatch.setattr(module, "drop_begun", lambda *_: None)
    monkeypatch.setattr(module, "rebuild", lambda *_: "")
    monkeypatch.setattr(module, "take", _kill)
    nothing: Any = None
    erasure = of_a_user(changed(lake_settings, LAKE_GOLD=tmp_path))
    erasure._rebuild(nothing)
    assert "silver.events" in erasure._done.rebuilt


def test_a_folder_that_cannot_be_removed_remains(lake_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    old = lake_settings.home / "old"
    old.mkdir(parents=True)
    (old / "data.parquet").touch()
    monkeypatch.setattr(module, "abandoned", lambda *_: [old.as_uri()])
    monkeypatch.setattr(module, "why_left", lambda *_: None)
    erasure = of_a_user(lake_settings)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", _refuse)
        erasure._remove_replaced()
    (said,) = erasure._done.remains
    assert said == f"{old.as_uri()}, a folder of a replaced table: Cannot remove {old}: Permission denied."
    assert (erasure._done.folders, old.exists()) == ([], True)
    erasure._remove_replaced()
    assert (erasure._done.folders, old.exists()) == ([old.as_uri()], False)


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_table_whose_product_is_gone_is_searched(lake_settings: Settings) -> None:
    catalog, rows = open_catalog(lake_settings), pa.table({"user_id": ["u-1"]})
    ensure_tables(catalog, load_contract(lake_settings.contracts, "events"))
    catalog.create_namespace_if_not_exists("gold")
    catalog.create_table("gold.former", rows.schema).append(rows)
    erasure = of_a_user(lake_settings)
    position = SinkPosition("id", "topic", "marker")
    SinkPositions(lake_settings.state.database).record("gold.former-to-acme", "gold.former", position, None)
    assert Places(lake_settings, "events").sent_topics(scope_of_run(lake_settings, ["events"], None)) == {"acme"}
    erasure._search(keep_landed=False)
    (remark,) = erasure._done.remains
    assert remark.startswith("gold.former: no contract or data product here is for it.")
    assert not erasure._done.is_complete


def test_what_a_product_has_published_is_searched_after_its_file_and_table_are_gone(lake_settings: Settings) -> None:
    settings = changed(lake_settings, LAKE_GOLD=ROOT / "gold")
    ensure_tables(open_catalog(settings), load_contract(settings.contracts, "events"))
    position, positions = SinkPosition("id", "topic", "marker"), SinkPositions(settings.state.database)
    for table in ("gold.former", "gold.page_views", "gold.user_activity"):  # of no stream, of clickstream, of events
        positions.record(f"{table}-to-{table}", table, position, None)
        folder = settings.home / "published" / table.removeprefix("gold.")
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"user_id": ["u-1"]}), folder / "first.parquet")
    erasure = of_a_user(settings)
    sent = Places(settings, "events").sent_topics(scope_of_run(settings, ["events"], None))
    assert sent == {"gold.former", "gold.user_activity"}
    erasure._search(keep_landed=False)
    assert sorted(uri.split("/")[-2] for uri in erasure._done.found_in) == ["former", "user_activity"]
    assert "1 file of a former sink of former: remove them." in erasure._done.remains


@pytest.mark.all
def test_a_topic_that_cannot_be_searched_is_left_unless_it_is_gone(lake_settings: Settings, kafka: KafkaServer) -> None:
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    position = SinkPosition("id", "topic", "marker")
    SinkPositions(lake_settings.state.database).record("silver.events-to-acme", "silver.events", position, None)
    away = {"LAKE_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}", "LAKE_KAFKA_TIMEOUT_SECONDS": "1"}
    for own, is_gone in ((away, False), ({"LAKE_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}, True)):
        erasure = of_a_user(changed(lake_settings, **own))
        erasure._forget_in_topics(in_source=False)
        done = erasure._done
        assert done.is_complete == is_gone
        (said,) = done.elsewhere if is_gone else done.remains
        assert said.startswith("The topic acme could not be searched: ")
        assert ("has no topic acme" in said) == is_gone


@pytest.mark.all
def test_the_topic_of_alerts_is_left_once_alerts_have_run(lake_settings: Settings) -> None:
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "sensors"))
    own = {"LAKE_GOLD": ROOT / "gold", "LAKE_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"}
    settings = changed(lake_settings, **own, LAKE_KAFKA_TIMEOUT_SECONDS="1")
    for has_run in (False, True):
        if has_run:
            with lease(settings.state.database, alerts_lease("sensor_samples")):
                pass
        erasure = module._Erasure(settings, "sensors", Condition(({"device": "d-1"},)), _kill)  # type: ignore[arg-type]
        erasure._forget_in_topics(in_source=False)
        done = erasure._done
        (said,) = done.remains if has_run else done.elsewhere
        assert said.startswith("The topic sensors.anomalies could not be searched: ")


def test_a_column_that_another_program_has_renamed_is_refused(lake_settings: Settings) -> None:
    catalog, contract = open_catalog(lake_settings), load_contract(lake_settings.contracts, "events")
    ensure_tables(catalog, contract)
    with catalog.load_table("bronze.events").update_schema() as update:
        update.rename_column("user_id", "visitor")
    nothing: Any = None
    with pytest.raises(UsageError, match=r"bronze\.events has no column user_id") as refused:
        find_rows(nothing, catalog, stream_tables("events"), contract, Condition(({"user_id": "u-1"},)))
    assert "undo that" in refused.value.hint


@pytest.mark.parametrize("outcome", ["closed", "failed"])
def test_a_dead_letter_whose_attempt_has_the_bytes_is_found(
    lake_settings: Settings, session_of: SessionOf, outcome: str
) -> None:
    """Otherwise it would be replayed once more, and the person would land again."""
    catalog, contract = open_catalog(lake_settings), load_contract(lake_settings.contracts, "events")
    ensure_tables(catalog, contract)
    ensure_attempts(catalog, "events")
    names = stream_tables("events")
    letters = [  # a unit that was too large, one that a transform has decoded, and one of somebody else
        {"_source": "1.json", "_position": 0, "raw": None},
        {"_source": "1.json", "_position": 1, "raw": b"eyJ1c2VyX2lkIjogInUtMSJ9"},
        {"_source": "1.json", "_position": 2, "raw": None},
    ]
    bytes_of = [b'{"user_id": "u-1"}', b'{"user_id": "u-1"}', b'{"user_id": "u-2"}']
    attempts = [
        {"_source": "1.json", "_position": at, "_letter": 1, "_attempt": 2, "raw": raw, "outcome": outcome}
        for at, raw in enumerate(bytes_of)
    ]
    for name, rows in ((names.dead_letters, letters), (names.attempts, attempts)):
        table = catalog.load_table(name)
        with table.update_schema(allow_incompatible_changes=True) as update:
            for column in table.schema().fields:
                update.make_column_optional(column.name)
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    condition = Condition(({"user_id": "u-1"},))
    found = find_rows(session_of(lake_settings), catalog, names, contract, condition)
    places = {(each.entry.table, each.entry.position) for each in found}
    assert places == {(name, at) for name in (names.dead_letters, names.attempts) for at in (0, 1)}
    assert [each.is_batch for each in found if each.entry.position == 0] == [False, False]


def test_archives_of_former_contracts_are_searched(lake_settings: Settings, tmp_path: Path) -> None:
    catalog = open_catalog(lake_settings)
    ensure_tables(catalog, load_contract(lake_settings.contracts, "events"))
    ledger = catalog.load_table("ledger.events")
    for name in ("former", "gone"):
        record_archive(ledger, f"file://{tmp_path}/{name}/events")
    copy = tmp_path / "former" / "events" / "1.json"
    copy.parent.mkdir(parents=True)
    copy.write_text('{"user_id": "u-1"}')
    erasure = of_a_user(lake_settings)
    erasure._search(keep_landed=False)
    assert erasure._done.found_in == [copy.as_uri()]
    (said,) = erasure._done.remains
    assert said.startswith(f"The archive file://{tmp_path}/gone/events does not exist")
    erasure._remove_landed(set(), keep_landed=False, in_source=False)
    assert (erasure._done.archived_files, copy.exists()) == (1, False)


def test_files_that_another_stream_reads_from_the_same_address_are_its_own_matter(
    lake_settings: Settings, tmp_path: Path
) -> None:
    text = (lake_settings.contracts / "events.yaml").read_text()
    address = f"servers:\n  - {{server: landing, type: local, path: {tmp_path}/there}}\n"
    globs = "customProperties:\n  - {property: landing, value: {include: ['a/*']}}\n"
    assert "\ncustomProperties:\n" in text
    (tmp_path / "events.yaml").write_text(text.replace("customProperties:\n", address + globs, 1))
    settings = changed(lake_settings, LAKE_CONTRACTS=tmp_path)
    catalog = open_catalog(settings)
    ensure_tables(catalog, load_contract(tmp_path, "events"))
    ledger = catalog.load_table("ledger.events")
    with ledger.update_schema(allow_incompatible_changes=True) as update:
        for column in ledger.schema().fields:
            update.make_column_optional(column.name)
    booked = {"source": "b/read before.json", "bronze": 1}
    ledger.append(pa.Table.from_pylist([booked], schema=ledger.schema().as_arrow()))
    for name in ("a/1.json", "b/other.json", booked["source"]):
        path = tmp_path / "there" / str(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"user_id": "u-1"}')
    erasure = of_a_user(settings)
    erasure._search(keep_landed=False)
    done = erasure._done
    assert sorted(uri.rpartition("/there/")[2] for uri in done.found_in) == ["a/1.json", "b/read%20before.json"]
    assert done.elsewhere == [f"1 file below file://{tmp_path}/there that the stream does not read: not searched."]


def test_mistakes_have_hints(lake_settings: Settings) -> None:
    condition = Condition(({"user_id": "u1"},))
    with pytest.raises(UsageError, match="LAKE_ERASURE_KEY is not set") as refused:
        erase(lake_settings, STREAM, condition, _kill)  # type: ignore[arg-type]
    assert "keep it" in refused.value.hint
    settings = changed(lake_settings, LAKE_ERASURE_KEY="a key of the operator")
    for held in (STREAM, LEASE):  # the lease of a run, a replay or another erasure; the lease of a maintenance
        with lease(settings.state.database, held), pytest.raises(LeaseHeldError):
            erase(settings, STREAM, condition, _kill)  # type: ignore[arg-type]
