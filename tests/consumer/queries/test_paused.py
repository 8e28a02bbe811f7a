"""A paused stream in an application: its followers finish, other queries end properly, and the error is the pause."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.consumer.breakers import write_contract
from tests.consumer.lake import SessionOf, rows
from tests.consumer.removal.accounts import EVENT
from tests.consumer.taking import layer_queries
from tests.lakes import changed

from consumer.app import repair
from consumer.monitoring.query_status import Doing
from consumer.monitoring.status import status
from consumer.queries.application import Query, run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.bulletin import Bulletin
from consumer.queries.trigger import Trigger
from lakeproof.contracts import load_contract
from lakeproof.errors import PausedError
from lakeproof.gold.product_file import load_product
from lakeproof.settings import Settings
from lakeproof.state.lease import lease
from lakeproof.storage import open_storage

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
PAUSE = "{share: 0.5, units: 4, over: micro-batch, action: pause}"


@pytest.fixture
def settings(lake_settings: Settings, tmp_path: Path) -> Settings:
    folder = tmp_path / "contracts"
    write_contract(folder, PAUSE)
    write_contract(folder, PAUSE, stream="clicks")
    return changed(lake_settings, LAKE_CONTRACTS=folder, LAKE_SETTLE_SECONDS=0)


@pytest.fixture
def run(session_of: SessionOf, settings: Settings) -> Callable[..., None]:
    def start(*streams: str, available_now: bool = True, silver: bool = True) -> None:
        trigger = Trigger(available_now=available_now, every="200 milliseconds")
        queries: list[Query] = [BronzeQuery(settings, stream, trigger) for stream in streams]
        for stream in streams:
            queries += layer_queries(settings, stream, trigger) * silver

        def session() -> SparkSession:
            return session_of(settings)

        run_queries(settings, queries, session, available_now=available_now)

    return start


def land(settings: Settings, stream: str, name: str, good: int, bad: int) -> None:
    records = [EVENT | {"event_id": f"{name}-{index}"} for index in range(good + bad)]
    for record in records[good:]:
        record["event_type"] = "teleport"
    file = settings.home / "landing" / stream / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(records))


def counts(settings: Settings, stream: str) -> tuple[int, int, int]:
    return tuple(len(rows(settings, f"{table}.{stream}")) for table in ("bronze", "dead_letters", "silver"))  # type: ignore[return-value]


@pytest.mark.all
@pytest.mark.parametrize("available_now", [pytest.param(True, marks=pytest.mark.long), False], ids=["now", "endless"])
def test_one_pauses_and_the_others_end_properly(
    settings: Settings, run: Callable[..., None], available_now: bool
) -> None:
    land(settings, "events", "1.json", 5, 0)
    run("events", silver=False)
    land(settings, "events", "2.json", 1, 4)
    land(settings, "clicks", "1.json", 5, 1)
    # The stream pauses first in its micro-batch, then at the start; silver takes the rows of bronze both times.
    for _ in range(2):
        with pytest.raises(PausedError, match=r"^bronze-events: events is paused: 4 of 5 units"):
            run("events", "clicks", available_now=available_now)
        assert counts(settings, "events") == (5, 0, 5)
        if available_now:
            assert counts(settings, "clicks") == (5, 1, 5)
    land(settings, "clicks", "2.json", 5, 1)
    found = {each.query: each.state for each in status(settings, ["events"])}
    assert found["bronze-events"] is Doing.PAUSED
    repair.accept(settings, "events")
    run("events", "clicks")
    assert counts(settings, "events") == (6, 4, 6)
    assert counts(settings, "clicks") == (10, 2, 10)


@pytest.mark.all
@pytest.mark.parametrize("available_now", [True, False], ids=["now", "endless"])
def test_gold_has_what_was_committed_before_the_pause(
    settings: Settings, session_of: SessionOf, available_now: bool
) -> None:
    """While bronze has a backlog, gold waits: it has done nothing yet when the pause comes."""
    for number, bad in enumerate((0, 0, 0, 5, 0)):
        land(settings, "events", f"{number}.json", 5 - bad, bad)
    one = changed(settings, LAKE_MAX_FILES_PER_MICRO_BATCH=1)
    trigger = Trigger(available_now=available_now, every="200 milliseconds")
    product = load_product(ROOT / "gold", "user_activity", partial(load_contract, one.contracts))
    queries = [BronzeQuery(one, "events", trigger), *layer_queries(one, "events", trigger, [product])]
    with pytest.raises(PausedError):
        run_queries(one, queries, lambda: session_of(one), available_now=available_now)
    assert counts(one, "events") == (15, 0, 15)
    assert sum(row["event_count"] for row in rows(one, "gold.user_activity")) == 15


def test_a_pause_ends_the_backlog_which_would_delay_its_followers(settings: Settings, session_of: SessionOf) -> None:
    for number, bad in enumerate((0, 5, 0)):
        land(settings, "events", f"{number}.json", 5 - bad, bad)
    one = changed(settings, LAKE_MAX_FILES_PER_MICRO_BATCH=1)
    query, bulletin, spark = BronzeQuery(one, "events", Trigger(available_now=True)), Bulletin(), session_of(one)
    query.prepare()
    with lease(one.state.database, query.lease_name) as held:
        query.resume(spark, held)
        assert query.look(spark, bulletin)
        assert bulletin.has_backlog(query.name)
        with pytest.raises(PausedError):
            query.look(spark, bulletin)
    assert not bulletin.has_backlog(query.name)


@pytest.mark.all
@pytest.mark.s3
def test_what_was_written_for_nothing_is_removed_from_a_bucket(
    s3_lake_settings: Settings, session_of: SessionOf, tmp_path: Path
) -> None:
    write_contract(tmp_path / "contracts", PAUSE)
    settings = changed(s3_lake_settings, LAKE_CONTRACTS=tmp_path / "contracts")
    settings = settings.model_copy(update={"s3": s3_lake_settings.s3})
    records = json.dumps([EVENT | {"event_id": str(index), "event_type": "teleport"} for index in range(5)]).encode()
    open_storage(settings.landing.uri, settings.s3).write_new(f"{settings.landing.uri}/events/1.json", records)

    def data_files() -> list[str]:
        warehouse = settings.catalog.warehouse_uri
        found = [each.uri for each in open_storage(warehouse, settings.s3).list()]
        return [uri for uri in found if uri.endswith(".parquet") and "/ops/" not in uri]

    def drain() -> None:
        query = BronzeQuery(settings, "events", Trigger(available_now=True))
        run_queries(settings, [query], lambda: session_of(settings), available_now=True)

    with pytest.raises(PausedError, match="5 of 5 units"):
        drain()
    assert data_files() == []
    repair.accept(settings, "events")
    drain()
    assert len(rows(settings, "dead_letters.events")) == 5
    assert data_files()
