"""``consumer erase`` on object storage and other catalogs, with sinks, lost answers, other erasures and kills."""

import itertools
import pkgutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tests.consumer.erasures import (
    AT,
    CONTRACT,
    PERSON,
    PRODUCT,
    STREAM,
    TABLES,
    Lakes,
    batch,
    lakes_of,
    same,
    traces,
    visit,
)
from tests.consumer.lake import SessionOf
from tests.consumer.replays import check_clean, content, drain, land, verify
from tests.lakes import changed
from tests.lost_answers import REST_ANSWERS, PostgresProxy, RestProxy
from tests.messages import received, send
from tests.servers import PASSWORD, KafkaServer, Minio, PostgresServer, RestCatalogServer

from consumer.iceberg import remove as removing
from consumer.queries.failures import explained
from consumer.removal import erase as erasing
from consumer.removal.account import read_account
from consumer.removal.certificate import Erased
from consumer.removal.condition import read_condition
from consumer.removal.erase import erase
from consumer.removal.retain_files import retain
from consumer.removal.topics import InTopic
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.lease import LeaseHeldError
from lakeproof.state.proofs import ProofKind
from lakeproof.storage.s3 import s3_client
from reader.verify.findings import Status

log = structlog.get_logger()

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]


def in_buckets(minio: Minio) -> dict[str, Callable[[str], Any]]:
    """Return variables of a lake whose files, except for checkpoints, are in buckets of its own."""
    own = uuid4().hex[:12]
    client = s3_client(minio.settings())
    for name in ("lake", "control"):
        client.create_bucket(Bucket=f"{name}-{own}")
    places = {
        f"LAKE_{each.upper()}": lambda name, each=each: f"s3://{name}-{own}/{each}"
        for each in ("landing", "warehouse", "published")
    }
    return places | {name: lambda _, value=value: value for name, value in minio.environment().items()}


@pytest.mark.s3
@pytest.mark.parametrize("catalog", ["postgres", "rest"])
def test_nothing_is_left_in_a_bucket(
    catalog: str,
    minio: Minio,
    tmp_path: Any,
    session_of: SessionOf,
    request: pytest.FixtureRequest,
) -> None:
    own, databases = in_buckets(minio), []
    if catalog == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        uris = {name: server.new_database(PASSWORD) for name in ("lake", "control")}
        own |= {"LAKE_CATALOG_URI": uris.__getitem__, "LAKE_LANDING_LOG_URI": uris.__getitem__}
        databases = [uris["lake"]]
    else:
        start: Callable[..., RestCatalogServer] = request.getfixturevalue("start_rest_catalog")
        warehouse = own.pop("LAKE_WAREHOUSE")
        servers = {
            name: start(tmp_path / f"rest-{name}", warehouse(name), minio.settings()) for name in ("lake", "control")
        }
        own |= {"LAKE_CATALOG": lambda _: "rest", "LAKE_CATALOG_URI": lambda name: servers[name].uri}
    lakes = lakes_of(tmp_path, session_of, **own)
    lakes.fill()
    check_clean(verify(lakes.settings, "visits"))
    before = {place.partition("/")[0] for place in traces(lakes.settings, *databases)}
    assert before >= {"s3:", "table breaker_trips"} if databases else before >= {"s3:"}
    done = lakes.erase()
    assert (done.found_in, done.remains) == ([], [])
    assert done.is_complete
    assert traces(lakes.settings, *databases) == []
    check_as_if_never_landed(lakes)


def check_as_if_never_landed(lakes: Lakes) -> None:
    """Check that other rows are as in the lake without the person, and that verify finds erased units, no faults."""
    for table in (*TABLES, "gold.spent"):
        assert same(lakes.settings, table) == same(lakes.control, table), table
    for kind in (ProofKind.NEW, ProofKind.ALL):
        found = verify(lakes.settings, "visits", kind=kind)
        results = [result for each in found.results.values() for result in each]
        wrong = [(result.name, result.faults, result.problems) for result in results if not result.clean]
        assert wrong == [], wrong
        assert Status.ERASED in {finding.what for finding in found.landed.findings}


PUBLISHED = f"{PRODUCT}publish: final\nsinks: [table, parquet]\n"


def test_what_sinks_have_is_forgotten(tmp_path: Path, session_of: SessionOf, kafka: KafkaServer) -> None:
    """Topics get tombstones, published files are rewritten; fields that the contract discards are in landed files."""
    soon = {"cleanup_policy": "compact", "segment_ms": 500, "min_cleanable_dirty_ratio": 0.01, "delete_retention_ms": 0}
    good = {name: kafka.new_topic(**soon) for name in ("lake", "control")}
    bad = {name: kafka.new_topic() for name in ("lake", "control")}
    lakes = lakes_of(
        tmp_path,
        session_of,
        product=PUBLISHED,
        contract=CONTRACT.replace("value: rescue", "value: discard").replace(
            "schema:",
            f"  - {{property: retention, value: {{archive: {tmp_path}/lake/archive, landed: 1 days}}}}\nschema:",
        ),
        LAKE_KAFKA_BOOTSTRAP_SERVERS=lambda _: kafka.bootstrap_servers,
        LAKE_SILVER_TOPIC=good.__getitem__,
        LAKE_DEAD_LETTER_TOPIC=bad.__getitem__,
    )
    settings = lakes.settings
    # No table has the fields that the contract discards, so these rows stay. The first file is in the archive, the
    # second one still in the landing zone.
    lakes.landing.land([settings], batch(visit(60, friend=PERSON)), batch(visit(61, friend=PERSON)))
    lakes.of_control.land([lakes.control], batch(visit(60)), batch(visit(61)))
    lakes.fill(friend_stays=True)
    archive = f"{settings.home}/archive"
    assert retain(settings, STREAM, timedelta(0), archive, only={"0000.json", "0002.json"}).removed == 2
    assert mentions(kafka, good["lake"]) > 0
    in_bad = mentions(kafka, bad["lake"])
    assert in_bad > 0
    assert {place.split("/")[0] for place in traces(settings)} >= {"published", "archive", "landing", "warehouse"}
    assert windows(settings) != windows(lakes.control)

    done = lakes.erase()
    assert (done.found_in, done.remains) == ([], [])
    assert done.published_files > 0
    assert done.archived_files == 2
    assert done.topics[good["lake"]].tombstones == done.topics[good["lake"]].messages > 0
    assert done.topics[bad["lake"]] == InTopic(in_bad, 0, is_compacted=False, is_ours=True)
    assert any(bad["lake"] in each and "retention.ms" in each for each in done.elsewhere)
    assert traces(settings) == []
    assert windows(settings) == windows(lakes.control)
    assert lakes.erase().topics[good["lake"]].tombstones == 0  # they were sent before

    # The next run sends all rows again, and continues with the files.
    for each in (settings, lakes.control):
        lakes.landing.land([each], batch(visit(50, at="12:00")))
        lakes.drain(each)
    assert windows(settings) == windows(lakes.control)
    deadline = time.monotonic() + 60
    while mentions(kafka, good["lake"]) and time.monotonic() < deadline:
        send(kafka, good["lake"], [b"{}"], key=b"roll")  # the newest segment is not compacted
        time.sleep(0.5)
    assert mentions(kafka, good["lake"]) == 0
    assert newest(kafka, good["lake"]) == newest(kafka, good["control"])
    check_as_if_never_landed(lakes)


def mentions(kafka: KafkaServer, topic: str) -> int:
    """Count the messages that contain the person."""
    return sum(
        "wanda" in repr((each.key(), each.value(), each.headers())) or PERSON in (each.value() or b"").decode()
        for each in received(kafka, topic)
    )


def newest(kafka: KafkaServer, topic: str) -> dict[bytes | None, bytes | None]:
    """Return the newest value of each key in a compacted topic."""
    found = {each.key(): each.value() for each in received(kafka, topic) if each.key() != b"roll"}
    return {key: value for key, value in found.items() if value is not None}


def windows(settings: Settings) -> list[str]:
    """Return the rows that readers of the published files see."""
    files = f"{settings.home}/published/spent/*.parquet"
    return sorted(map(repr, duckdb.sql(f"SELECT window_start, user_id, visits, amount FROM '{files}'").fetchall()))


PEOPLE = [f"wanda-{number}" for number in range(5)]


@dataclass
class Many:
    """Lake with several people who are erased one after the other, and with one who stays."""

    settings: Settings
    session_of: SessionOf

    def fill(self) -> None:
        for number in range(2):
            records = [
                each
                for place, person in enumerate(PEOPLE, 100 + 20 * number)
                for each in (
                    visit(place, person),
                    visit(place, person, amount=0),
                    visit(1000 + place, person, "no time"),
                )
            ]
            land(self.settings, f"{number}.json", batch(visit(number), *records, visit(0, amount=7)), STREAM)
            drain(self.settings, self.session_of, stream=STREAM)
        check_clean(verify(self.settings, STREAM))

    def erase(self, person: str) -> Erased:
        """Erase a person as the program does."""
        condition = read_condition(f"user_id = '{person}'", load_contract(self.settings.contracts, STREAM))
        try:
            return erase(self.settings, STREAM, condition, lambda: self.session_of(self.settings))
        except (Py4JError, PySparkException) as error:
            raise explained(error, self.settings, STREAM) from error

    def rows(self) -> dict[str, list[str]]:
        """Return the rows without the people who are erased."""
        tables = (*TABLES[:-1], "gold.spent")
        return {
            table: [each for each in content(self.settings, table, but=AT) if "wanda" not in each] for table in tables
        }

    def check(self, before: dict[str, list[str]], erased: Sequence[str]) -> None:
        assert self.rows() == before
        found = verify(self.settings, STREAM)
        results = [result for each in found.results.values() for result in each]
        wrong = [(result.name, result.faults, result.problems) for result in results if not result.clean]
        assert wrong == [], wrong
        assert traces(self.settings, names=[f"{person}\\b" for person in erased]) == []


@pytest.mark.parametrize("kind", ["postgres", "rest"])
def test_each_answer_of_the_catalog_may_be_lost(
    kind: str, tmp_path: Path, session_of: SessionOf, request: pytest.FixtureRequest
) -> None:
    """Each answer is lost in the erasure of one of four people; each erasure is complete, at once or when repeated."""
    turns, phase, seen, spared = itertools.cycle(REST_ANSWERS), -1, 0, 0

    def loses() -> bool:
        nonlocal seen
        seen += 1
        return phase >= 0 and seen > spared and seen % 4 == phase

    with ExitStack() as stack:
        if kind == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            proxy: Any = PostgresProxy(server.port, lambda _: loses())
            own = {"LAKE_CATALOG_URI": proxy.through(server.new_database(PASSWORD))}
        else:
            rest = stack.enter_context(RestCatalogServer(tmp_path / "rest", f"file://{tmp_path}/lake/warehouse"))
            proxy = RestProxy(rest.uri, lambda _: next(turns) if loses() else None)
            own = {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": proxy.uri}
        stack.callback(proxy.close)
        lakes = lakes_of(tmp_path, session_of, **{name: lambda _, value=value: value for name, value in own.items()})
        many = Many(lakes.settings, session_of)
        many.fill()
        before, errors = many.rows(), []
        for phase in range(4):
            spared = 0
            for _ in range(40):
                seen = 0
                try:
                    done = many.erase(PEOPLE[phase])
                except LakeproofError as error:
                    errors.append(error)
                    spared = seen  # a repetition gets further: it loses later answers
                    log.info("refused", person=PEOPLE[phase], code=error.exit_code, error=error.message)
                    continue
                if done.is_complete:
                    break
            else:
                raise AssertionError(errors)
        lost = list(proxy.lost)
        phase = -1
        many.check(before, PEOPLE[:4])
        log.info("lost", answers=len(lost), errors=[(error.exit_code, error.message) for error in errors])
        assert len(lost) > 15
        assert all(error.retryable for error in errors), [(error.exit_code, error.message) for error in errors]


def test_another_erasure_waits_or_collides(tmp_path: Path, session_of: SessionOf) -> None:
    """A second erasure waits; if its leases are in a copy of the database, nothing is lost, and one is repeated."""
    lakes = lakes_of(tmp_path, session_of)
    many = Many(lakes.settings, session_of)
    many.fill()
    before = many.rows()
    copy = tmp_path / "other.db"
    with closing(sqlite3.connect(lakes.settings.home / "landing-log.db")) as own, closing(sqlite3.connect(copy)) as its:
        own.backup(its)
    other = Many(changed(lakes.settings, LAKE_LANDING_LOG_URI=f"sqlite:///{copy}"), session_of)
    for place, name, collides in (("_publish", removing, True), ("_Erasure._rebuild", erasing, False)):
        first, second = PEOPLE[:2] if collides else PEOPLE[2:4]
        real, done, once = pkgutil.resolve_name(f"{name.__name__}.{place}"), [], iter([True])

        def meanwhile(
            *arguments: Any, real: Any = real, second: str = second, done: list[Erased] = done, once: Any = once
        ) -> Any:
            if next(once, False):  # the second erasure calls this function, too
                with pytest.raises(LeaseHeldError):
                    many.erase(second)
                done.append(other.erase(second))
            return real(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{name.__name__}.{place}", meanwhile)
            if collides:
                with pytest.raises(UnavailableError):
                    many.erase(first)
            assert many.erase(first).is_complete
        assert done[0].is_complete
    many.check(before, PEOPLE[:4])


class KilledError(BaseException):
    """Raised to end an erasure at one of its steps."""


def kill(*_: object, **__: object) -> None:
    raise KilledError


def after(count: int, name: str) -> Any:
    """Return a function that passes `count` calls on, then kills."""
    real: Any = pkgutil.resolve_name(name)
    left = iter(range(count))

    def call(*arguments: Any, **named: Any) -> Any:
        if next(left, None) is None:
            raise KilledError
        return real(*arguments, **named)

    return call


STEPS = [
    ("consumer.removal.erase._Erasure._remove_rows", 0, "the account is written"),
    ("consumer.iceberg.remove._proven", 0, "rows are removed on a branch"),
    ("consumer.iceberg.remove._publish", 1, "the dead letters are done, bronze is proven"),
    ("consumer.removal.erase._Erasure._rebuild", 0, "rows are removed"),
    ("consumer.layers.rebuild.replace_tables", 0, "silver is filled beside the old one"),
    ("pyiceberg.catalog.rest.RestCatalog.rename_table", 0, "a REST catalog dropped the old table"),
    ("consumer.removal.erase.rebuild", 1, "silver is filled, gold is not"),
    ("pyiceberg.catalog.rest.RestCatalog.rename_table", 4, "gold is dropped"),
    ("consumer.removal.erase.take", 0, "published files are removed"),
    ("consumer.removal.erase._Erasure._forget_examples", 0, "all is filled"),
    ("consumer.removal.erase.retain", 0, "landed files are next"),
    ("consumer.removal.erase._Erasure._forget", 0, "landed files are gone"),
    ("consumer.removal.erase.orphans", 0, "a table's snapshots are expired"),
    ("consumer.removal.erase.remove_folder", 1, "one old folder is gone"),
    ("consumer.removal.erase._Erasure._search", 0, "all is gone"),
    ("consumer.removal.erase._Erasure._name_elsewhere", 0, "all is searched"),
]
"""Functions in which an erasure is killed, the number of calls before that, and the state of the erasure."""


def test_it_is_killed_at_each_step(
    tmp_path: Path, session_of: SessionOf, start_rest_catalog: Callable[..., RestCatalogServer]
) -> None:
    servers = {
        name: start_rest_catalog(tmp_path / f"rest-{name}", f"file://{tmp_path}/{name}/warehouse")
        for name in ("lake", "control")
    }
    own = {"LAKE_CATALOG": lambda _: "rest", "LAKE_CATALOG_URI": lambda name: servers[name].uri}
    lakes = lakes_of(tmp_path, session_of, product=PUBLISHED, **own)
    lakes.fill()
    drop = removing.drop_branches
    for name, count, step in STEPS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(name, after(count, name))
            # A killed process does not clean up.
            patch.setattr(removing, "drop_branches", lambda table, *branch: None if branch else drop(table))
            with pytest.raises(KilledError):
                lakes.erase()
        assert read_account(open_catalog(lakes.settings), STREAM).unfinished, step
        log.info("killed", step=step)
    done = lakes.erase()
    assert (done.found_in, done.remains) == ([], [])
    assert done.is_complete
    assert traces(lakes.settings) == []
    assert windows(lakes.settings) == windows(lakes.control)
    check_as_if_never_landed(lakes)
