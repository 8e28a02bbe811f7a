"""A commit whose answer is lost has landed: the table is complete, and has the micro-batch once."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from tests.consumer.iceberg.upserts import Upserts, marker
from tests.consumer.lake import SessionOf, rows
from tests.consumer.taking import layer_queries
from tests.lakes import changed
from tests.lost_answers import REST_ANSWERS, Answer, PostgresProxy, RestProxy
from tests.selection import first_by_default
from tests.servers import PASSWORD, PostgresServer, RestCatalogServer

from consumer.iceberg import rewrite
from consumer.iceberg.append import append_once
from consumer.iceberg.expire import expire
from consumer.iceberg.rewrite import CollisionError, compact
from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from lakeproof.contracts import load_contract
from lakeproof.errors import UnavailableError
from lakeproof.gold.product_file import load_product
from lakeproof.settings import Settings
from lakeproof.storage import open_storage
from reader.connect import connect
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
EVENT = {
    "user_id": "u1",
    "event_timestamp": "2026-11-21T06:00:00Z",
    "properties": {"url": "https://example.com"},
    "event_type": "page_view",
}
KINDS = ("postgres", *(f"rest {answer}" for answer in REST_ANSWERS))
_USUAL = ("postgres", "rest 503 Retry-After")  # a reset connection, and an answer that makes the client retry


@dataclass
class Catalog:
    """A lake whose catalog loses answers while `losing` is set."""

    settings: Settings
    proxy: PostgresProxy | RestProxy
    losing: bool = False


@pytest.fixture
def catalog_that_loses(request: pytest.FixtureRequest, lake_settings: Settings) -> Iterator[Callable[..., Catalog]]:
    """Yield a function that makes a lake whose catalog gives these answers to landed commits, or none: a reset."""
    with ExitStack() as stack:

        def make(*answers: Answer) -> Catalog:
            if not answers:
                server: PostgresServer = request.getfixturevalue("postgres")
                proxy = PostgresProxy(server.port, lambda tag: catalog.losing and tag == "UPDATE 1")
                changes = {"LAKE_CATALOG_URI": proxy.through(server.new_database(PASSWORD))}
                catalog = Catalog(changed(lake_settings, **changes), proxy)
            else:
                folder, warehouse = lake_settings.home / "rest", lake_settings.catalog.warehouse_uri
                rest = stack.enter_context(RestCatalogServer(folder, warehouse))
                turns = itertools.cycle(answers)
                proxy = RestProxy(rest.uri, lambda _table: next(turns) if catalog.losing else None)
                changes = {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": proxy.uri, "LAKE_WAREHOUSE": None}
                catalog = Catalog(changed(lake_settings, **changes), proxy)
            stack.callback(proxy.close)
            return catalog

        yield make


@pytest.mark.parametrize(
    "kind",
    [
        *first_by_default(_USUAL),
        *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS if kind not in _USUAL),
    ],
)
def test_a_commit_whose_answer_is_lost_has_landed(
    kind: str, catalog_that_loses: Callable[..., Catalog], session_of: SessionOf
) -> None:
    answers = [answer for answer in REST_ANSWERS if kind == f"rest {answer}"]
    catalog = catalog_that_loses(*answers)
    table = Upserts(session_of(catalog.settings), **{"commit.manifest.min-count-to-merge": "2"})
    catalog.losing = True
    assert table.append(0, "a", 0, 1, 2)
    assert table.append(1, "a", 30, 31)
    assert table.upsert(2, "b", 1, 31)
    assert table.upsert(3, "c", 1, 2)
    catalog.losing = False
    assert len(catalog.proxy.lost) == 4
    expected = [(0, "a"), (1, "c"), (2, "c"), (30, "a"), (31, "b")]
    assert sorted(tuple(row)[:2] for row in table.spark.table(f"lake.{table.name}").collect()) == expected
    assert sorted((row["id"], row["value"]) for row in rows(catalog.settings, table.name)) == expected
    with connect(catalog.settings) as session:
        found = session.sql(f"SELECT id, value FROM {table.name} ORDER BY id")
        assert found is not None
        assert found.fetchall() == expected
    assert not append_once(table.open(), marker(3), [])
    assert table.append(4, "d", 4)
    assert table.metadata_files() == table.known_metadata_files()  # no orphan


@pytest.mark.all
@pytest.mark.parametrize(
    "kind",
    [pytest.param("postgres", marks=pytest.mark.long), "rest 409", pytest.param("rest reset", marks=pytest.mark.long)],
)
def test_a_maintenance_whose_answers_are_lost_destroys_nothing(
    kind: str, catalog_that_loses: Callable[..., Catalog], session_of: SessionOf
) -> None:
    catalog = catalog_that_loses(*(answer for answer in REST_ANSWERS if kind == f"rest {answer}"))
    table = Upserts(session_of(catalog.settings))
    for number in range(6):
        table.append(number, "a", 2 * number, 2 * number + 1)
    table.upsert(6, "b", 1, 3)
    expected = table.rows()
    errors: list[Exception] = []
    for _ in range(3):
        try:
            with losing_after_the_rewrite(catalog):
                compact(table.open(), {"min-input-files": "2"})
        except (CollisionError, Py4JError) as error:
            errors.append(error)
        catalog.losing = True
        try:
            expire(table.open(), datetime.now(UTC))
        except Py4JError as error:
            errors.append(error)
        catalog.losing = False
    assert catalog.proxy.lost
    assert table.rows() == expected, errors
    with connect(catalog.settings) as session:
        found = session.sql(f"SELECT id, value FROM {table.name}")
        assert found is not None
        assert dict(found.fetchall()) == expected
    table.append(7, "c", 20)
    compact(table.open(), {"min-input-files": "2"})
    assert table.rows() == expected | {20: "c"}


@contextmanager
def losing_after_the_rewrite(catalog: Catalog) -> Iterator[None]:
    """Lose the answers to the swap and to everything after it."""
    swap: Any = rewrite._swap

    def and_lose(*arguments: Any) -> None:
        catalog.losing = True
        swap(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rewrite, "_swap", and_lose)
        try:
            yield
        finally:
            catalog.losing = False


@pytest.mark.all
@pytest.mark.parametrize(
    "answers", [pytest.param((), id="postgres", marks=pytest.mark.long), pytest.param(REST_ANSWERS, id="rest")]
)
def test_each_answer_of_a_run_may_be_lost(
    answers: tuple[Answer, ...], catalog_that_loses: Callable[..., Catalog], session_of: SessionOf
) -> None:
    catalog = catalog_that_loses(*answers)
    settings = changed(catalog.settings, LAKE_SETTLE_SECONDS=0)
    product = load_product(ROOT / "gold", "user_activity", lambda stream: load_contract(settings.contracts, stream))
    trigger = Trigger(available_now=True)

    def run() -> None:
        queries = [
            BronzeQuery(settings, "events", trigger),
            *layer_queries(settings, "events", trigger, [product]),
        ]
        run_queries(settings, queries, lambda: session_of(settings), available_now=True)

    def run_until_it_ends_well() -> None:
        for _ in range(20):
            try:
                return run()
            except UnavailableError as error:  # PyIceberg changes properties without checking whether they landed
                errors.append(error)
        raise AssertionError(errors)

    errors: list[UnavailableError] = []
    tables = {
        "bronze.events": 6,
        "dead_letters.events": 2,
        "ledger.events": 2,
        "silver.events": 5,
        "silver.events_conflicts": 1,
        "gold.user_activity": 1,
    }
    for name in ("a", "b"):  # the second run replaces a row of gold
        records = [EVENT | {"event_id": f"{name}-{number}"} for number in range(2)]
        batch = json.dumps([*records, EVENT | {"event_id": "same", "properties": {"url": name}}, {"bad": True}])
        open_storage(settings.landing.uri, settings.s3).write_new(
            f"{settings.landing.uri}/events/{name}.json", batch.encode()
        )
        catalog.losing = True
        run_until_it_ends_well()
    lost = list(catalog.proxy.lost)
    catalog.losing = False
    run()  # nothing is left to do
    assert len(lost) > 12
    assert all(error.exit_code == 3 for error in errors)
    for table, count in tables.items():
        assert len(rows(settings, table)) == count, table
        assert session_of(settings).table(f"lake.{table}").count() == count, table
        with connect(settings) as session:
            found = session.sql(f"SELECT count(*) FROM {table}")
            assert found is not None
            assert found.fetchall() == [(count,)], table
    (found,) = verify(settings, "events", values=True)
    assert not found.off
