"""A lake is backed up while it runs, continues, is restored, and continues again: nothing is lost or doubled."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from pyiceberg.catalog import Catalog
from tests.consumer.direct import run_in_turn
from tests.consumer.lake import SessionOf, rows
from tests.consumer.taking import layer_queries
from tests.lakes import changed
from tests.selection import only_with_all
from tests.servers import PASSWORD, PostgresServer, RestCatalogServer

from consumer.maintenance.maintain import maintain
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from lakeproof.backup.manifest import Folder, folder_at
from lakeproof.backup.restore import RestorePlan, plan_restore, restore
from lakeproof.backup.take import back_up
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.gold.product_file import load_product
from lakeproof.settings import Settings
from lakeproof.state.proofs import ProofKind
from lakeproof.storage import open_storage
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
EVENT = {"user_id": "u", "event_timestamp": "2026-11-21T06:00:00Z", "event_type": "page_view", "properties": {}}
WEEK = timedelta(days=7)
RESTORED = (ProofKind.NEW, ProofKind.ALL)
"""What is proven after a restore: the book may have proofs from after the backup."""


def on_sqlite(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    return settings


def on_postgres(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    server: PostgresServer = request.getfixturevalue("postgres")
    uri = server.new_database(PASSWORD)
    return changed(settings, LAKE_CATALOG_URI=uri, LAKE_LANDING_LOG_URI=uri)


def on_rest(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    start: Callable[..., RestCatalogServer] = request.getfixturevalue("start_rest_catalog")
    server = start(settings.home / "rest", settings.catalog.warehouse_uri, settings.s3)
    return changed(settings, LAKE_CATALOG="rest", LAKE_CATALOG_URI=server.uri, LAKE_WAREHOUSE=None)


def land(settings: Settings, *names: str) -> None:
    """Land files of three events and a bad record."""
    for name in names:
        records = [*(EVENT | {"event_id": f"{name}-{number}"} for number in range(3)), {"bad": True}]
        uri = f"{settings.landing.uri}/events/{name}.json"
        open_storage(settings.landing.uri, settings.s3).write_new(uri, json.dumps(records).encode())


def take(settings: Settings, session_of: SessionOf, *names: str) -> None:
    """Land files, and take everything that has landed to gold."""
    land(settings, *names)
    settings = changed(settings, LAKE_SETTLE_SECONDS=0)
    trigger = Trigger(available_now=True)
    product = load_product(ROOT / "gold", "user_activity", lambda stream: load_contract(settings.contracts, stream))
    queries = [BronzeQuery(settings, "events", trigger), *layer_queries(settings, "events", trigger, [product])]
    run_in_turn(session_of(settings), settings, queries)


def check(settings: Settings, *names: str, kinds: Sequence[ProofKind] = (ProofKind.ALL,)) -> None:
    """Check that every layer has each event of some files, once, and that the lake is clean."""
    expected = sorted(f"{name}-{number}" for name in names for number in range(3))
    for table in ("bronze.events", "silver.events"):
        assert sorted(row["event_id"] for row in rows(settings, table)) == expected, table
    assert sorted(row["_source"] for row in rows(settings, "dead_letters.events")) == sorted(f"{n}.json" for n in names)
    assert [row["event_count"] for row in rows(settings, "gold.user_activity")] == [len(expected)]
    for kind in kinds:
        (found,) = verify(settings, "events", values=True, kind=kind)
        assert found.clean


def actions(plan: RestorePlan) -> dict[str, str]:
    return {each.name: each.action for each in plan.tables}


def drop_all(catalog: Catalog) -> None:
    """Drop all tables from the catalog; their files stay."""
    for (namespace,) in catalog.list_namespaces():
        for name in catalog.list_tables(namespace):
            catalog.drop_table(name)


@pytest.mark.all
@pytest.mark.parametrize(
    ("catalog", "storage"),
    [
        ("sqlite", "local"),
        pytest.param("rest", "local", marks=pytest.mark.long),
        only_with_all("postgres", "s3", marks=[pytest.mark.s3]),
        pytest.param("rest", "s3", marks=[pytest.mark.s3, pytest.mark.long]),
    ],
)
def test_a_lake_goes_back_and_goes_on(
    request: pytest.FixtureRequest, session_of: SessionOf, catalog: str, storage: str
) -> None:
    lake: Settings = request.getfixturevalue({"local": "lake_settings", "s3": "s3_lake_settings"}[storage])
    lake = {"sqlite": on_sqlite, "postgres": on_postgres, "rest": on_rest}[catalog](request, lake)
    where = None if storage == "local" else f"{lake.landing.uri.rpartition('/')[0]}/backups"
    take(lake, session_of, "a")
    folder = back_up(lake, folder_at(lake, where), WEEK)[1]
    assert set(actions(plan_restore(lake, folder)).values()) == {"unchanged"}
    with backing_up(lake, folder.parent) as made:
        take(lake, session_of, "b", "c")
    assert made
    check(lake, "a", "b", "c")
    take(lake, session_of, "d")
    during = random.Random(7).choice(made)  # the consumer may have been doing anything
    restore(lake, during)
    assert set(actions(plan_restore(lake, during)).values()) == {"unchanged"}
    take(lake, session_of)
    check(lake, *"abcd", kinds=RESTORED)

    # Maintenance expires everything except what the tags keep.
    if storage == "local":
        expiring = changed(lake, LAKE_MAINTENANCE_KEEP_HOURS=0.0001)
        assert not [each for each in maintain(expiring, [], lambda: session_of(lake)) if each.problem]
        check(lake, *"abcd")
    drop_all(open_catalog(lake))
    done = restore(lake, folder)
    assert set(actions(done).values()) == {"registered again"}
    assert sorted(row["event_id"] for row in rows(lake, "bronze.events")) == ["a-0", "a-1", "a-2"]
    take(lake, session_of)
    check(lake, *"abcd", kinds=RESTORED)


@contextmanager
def backing_up(lake: Settings, place: Folder) -> Iterator[list[Folder]]:
    """Make one backup after another within the context."""
    made: list[Folder] = []
    errors: list[Exception] = []
    is_done = Event()

    def run() -> None:
        try:
            while not is_done.wait(0.2):  # a slow consumer must find time for a commit
                made.append(back_up(lake, place, WEEK)[1])
        except Exception as error:  # noqa: BLE001 - for the test to show
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield made
    finally:
        is_done.set()
        thread.join()
    assert not errors
