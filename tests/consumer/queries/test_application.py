"""Several queries run in one application: each has its own pool, settings and lease, and all end together."""

import json
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.consumer.app.test_streams import GOOD
from tests.consumer.lake import SessionOf, rows
from tests.consumer.taking import layer_queries
from tests.lakes import changed

from consumer.queries.application import STOPPING, Query, _bulletin, _wait_for_the_end, run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.bulletin import Bulletin
from consumer.queries.running import Running, SparkQueries
from consumer.queries.trigger import Trigger
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import checkpoint_folder
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.failures import failures
from lakeproof.state.lease import Lease, LeaseHeldError, lease

pytestmark = pytest.mark.spark

NOW = Trigger(available_now=True)


def land(settings: Settings, stream: str, name: str = "1.json") -> Path:
    file = settings.home / "landing" / stream / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([GOOD[stream], {"unknown": 1}]))
    return file


class Ticks(Query):
    """Toy query that counts the rows of one of Spark's own sources, and records the settings that it gets."""

    lease_name = name = "ticks"

    def __init__(self, settings: Settings, fails: bool = False) -> None:
        self._settings = settings
        self._fails = fails
        self.spark_settings: Mapping[str, str] = {"spark.sql.shuffle.partitions": "7"}
        self.micro_batches = 0
        self.given: dict[str, Any] = {}
        self.resumed = threading.Event()

    def prepare(self) -> None:
        pass

    def resume(self, spark: SparkSession, held: Lease) -> None:
        held.check()
        self.resumed.set()

    def start(self, spark: SparkSession, bulletin: Bulletin) -> Running:
        def take(batch: DataFrame, _number: int) -> None:
            context = batch.sparkSession.sparkContext
            self.given = {
                "pool": context.getLocalProperty("spark.scheduler.pool"),
                "partitions": batch.sparkSession.conf.get("spark.sql.shuffle.partitions"),
            }
            if self._fails:
                raise UnavailableError("The ticks are away.", "Wait.")
            self.micro_batches += 1

        ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        running = (
            ticks.writeStream.queryName(self.name)
            .option("checkpointLocation", checkpoint_folder(self._settings, self.name))
            .trigger(availableNow=True)
            .foreachBatch(take)
            .start()
        )
        return SparkQueries([running])

    def explain(self, error: Exception) -> LakeproofError:
        return LakeproofError("The ticks failed.", str(error))


def test_streams_share_an_application(lake_settings: Settings, session_of: SessionOf) -> None:
    for stream in GOOD:
        land(lake_settings, stream)
    queries = [BronzeQuery(lake_settings, stream, NOW) for stream in GOOD]
    run_queries(lake_settings, queries, lambda: session_of(lake_settings), available_now=True)
    for query, stream in zip(queries, GOOD, strict=True):
        assert query.micro_batches == 1
        assert len(rows(lake_settings, f"bronze.{stream}")) == 1
        assert len(rows(lake_settings, f"dead_letters.{stream}")) == 1
        assert len(rows(lake_settings, f"ledger.{stream}")) == 1


def test_each_query_has_its_own_pool_and_settings(lake_settings: Settings, session_of: SessionOf) -> None:
    land(lake_settings, "events")
    session = session_of(lake_settings)
    before = session.conf.get("spark.sql.shuffle.partitions")
    ticks, events = Ticks(lake_settings), BronzeQuery(lake_settings, "events", NOW)
    queries: list[Query] = [ticks, events]
    run_queries(lake_settings, queries, lambda: session, available_now=True)
    assert ticks.given == {"pool": "ticks", "partitions": "7"}
    assert (ticks.micro_batches > 0, events.micro_batches) == (True, 1)
    assert session.conf.get("spark.sql.shuffle.partitions") == before
    assert session.sparkContext.getLocalProperty("spark.scheduler.pool") is None


def test_one_that_fails_is_named_and_the_others_end(lake_settings: Settings, session_of: SessionOf) -> None:
    land(lake_settings, "events")
    events = BronzeQuery(lake_settings, "events", Trigger())
    queries: list[Query] = [Ticks(lake_settings, fails=True), events]
    with pytest.raises(LakeproofError, match=r"^ticks: The ticks failed\.") as caught:
        run_queries(lake_settings, queries, lambda: session_of(lake_settings), available_now=False)
    assert "The ticks are away" in caught.value.hint
    assert not session_of(lake_settings).streams.active
    with lease(lake_settings.state.database, "events"):  # the lease was released
        pass
    # The query resumes from its checkpoint.
    run_queries(
        lake_settings,
        [BronzeQuery(lake_settings, "events", NOW)],
        lambda: session_of(lake_settings),
        available_now=True,
    )
    assert len(rows(lake_settings, "bronze.events")) == 1


@pytest.mark.parametrize("step", ["resume", "start"])
def test_what_spark_fails_with_before_a_query_runs_is_explained_and_kept(
    lake_settings: Settings, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    ticks = Ticks(lake_settings)

    def fail(spark: SparkSession, *_: object) -> None:
        jvm: Any = spark._jvm
        jvm.java.util.ArrayList().get(3)

    monkeypatch.setattr(ticks, step, fail)
    with pytest.raises(LakeproofError, match=r"^The ticks failed\."):
        run_queries(lake_settings, [ticks], lambda: session_of(lake_settings), available_now=True)
    assert failures(lake_settings.state.database) == {"ticks": "The ticks failed."}


def test_what_a_query_cannot_prepare_is_kept(
    lake_settings: Settings, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks(lake_settings)

    def fail() -> None:
        raise ConnectionError("refused")

    monkeypatch.setattr(ticks, "prepare", fail)
    with pytest.raises(UnavailableError, match="Cannot read the catalog: ConnectionError: refused"):
        run_queries(lake_settings, [ticks], lambda: session_of(lake_settings), available_now=True)
    assert failures(lake_settings.state.database)["ticks"].startswith("Cannot read the catalog")


def test_one_that_was_taken_over_says_so_whatever_it_failed_with(
    lake_settings: Settings, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended consumer runs into its successor in the tables, or in the landing log."""
    ticks = Ticks(lake_settings, fails=True)
    resume = ticks.resume

    def lose(spark: SparkSession, held: Lease) -> None:
        resume(spark, held)
        held.give_back()
        with lease(lake_settings.state.database, ticks.lease_name):
            pass

    monkeypatch.setattr(ticks, "resume", lose)
    with pytest.raises(LeaseHeldError, match="took over the stream 'ticks'"):
        run_queries(lake_settings, [ticks], lambda: session_of(lake_settings), available_now=True)


@pytest.mark.all
def test_a_file_that_is_gone_fails_its_stream_alone(lake_settings: Settings, session_of: SessionOf) -> None:
    gone = land(lake_settings, "events")
    land(lake_settings, "sensors")

    class Unmounted(BronzeQuery):
        def start(self, spark: SparkSession, bulletin: Bulletin) -> Running:
            gone.unlink()
            return super().start(spark, bulletin)

    queries = [Unmounted(lake_settings, "events", NOW), BronzeQuery(lake_settings, "sensors", NOW)]
    with pytest.raises(UnavailableError, match=r"^bronze-events: .*1\.json"):
        run_queries(lake_settings, queries, lambda: session_of(lake_settings), available_now=True)
    land(lake_settings, "events")
    queries = [BronzeQuery(lake_settings, stream, NOW) for stream in ("events", "sensors")]
    run_queries(lake_settings, queries, lambda: session_of(lake_settings), available_now=True)
    for stream in ("events", "sensors"):
        assert len(rows(lake_settings, f"bronze.{stream}")) == 1


def test_a_source_leaves_its_error_as_it_is(lake_settings: Settings, session_of: SessionOf) -> None:
    land(lake_settings, "events")

    class Restored(BronzeQuery):
        """Query whose landing log is an older copy by the time its source reads it."""

        def start(self, spark: SparkSession, bulletin: Bulletin) -> Running:
            from lakeproof.state.database import open_database, transaction

            with transaction(open_database(lake_settings.state.database)) as connection:
                connection.exec_driver_sql("UPDATE current_contracts SET stream = 'other'")
            return super().start(spark, bulletin)

    with pytest.raises(LakeproofError, match=r"^The landing log has no contract for the stream 'events'\."):
        run_queries(
            lake_settings,
            [Restored(lake_settings, "events", NOW)],
            lambda: session_of(lake_settings),
            available_now=True,
        )


def test_no_query_runs_where_one_of_them_runs_elsewhere(lake_settings: Settings, session_of: SessionOf) -> None:
    land(lake_settings, "sensors")
    ticks = Ticks(lake_settings)
    with lease(lake_settings.state.database, "sensors"), pytest.raises(LeaseHeldError):
        run_queries(
            lake_settings,
            [ticks, BronzeQuery(lake_settings, "sensors", NOW)],
            lambda: session_of(lake_settings),
            available_now=True,
        )
    assert not ticks.resumed.is_set()
    with lease(lake_settings.state.database, "ticks"):  # the lease was released
        pass


def test_silver_follows_bronze_to_its_end(lake_settings: Settings, session_of: SessionOf) -> None:
    for number in range(3):
        land(lake_settings, "events", f"{number}.json")
    settings = changed(lake_settings, LAKE_MAX_FILES_PER_MICRO_BATCH=1, LAKE_MAX_ROWS_PER_SILVER_MICRO_BATCH=1)
    queries: list[Query] = [BronzeQuery(settings, "events", NOW), *layer_queries(settings, "events", NOW)]
    run_queries(settings, queries, lambda: session_of(settings), available_now=True)
    assert queries[0].micro_batches == 3
    assert [row["_source"] for row in rows(settings, "silver.events")] == ["0.json"]
    ledger = {row["source"]: (row["kept"], row["duplicates"]) for row in rows(settings, "ledger.events_silver")}
    assert ledger == {"0.json": (1, 0), "1.json": (0, 1), "2.json": (0, 1)}


@pytest.mark.all
def test_silver_that_fails_is_named_and_ends_bronze(lake_settings: Settings, session_of: SessionOf) -> None:
    def run(*queries: Query, available_now: bool) -> None:
        run_queries(lake_settings, queries, lambda: session_of(lake_settings), available_now=available_now)

    land(lake_settings, "events")
    run(BronzeQuery(lake_settings, "events", NOW), available_now=True)
    open_catalog(lake_settings).load_table("bronze.events").delete("event_id == 'e'")
    for available_now in (True, False):
        trigger = Trigger(available_now)
        with pytest.raises(LakeproofError, match=r"^silver-events: bronze\.events has 0 rows of 1\.json"):
            run(
                BronzeQuery(lake_settings, "events", trigger),
                *layer_queries(lake_settings, "events", trigger),
                available_now=available_now,
            )
        said = failures(lake_settings.state.database)
        assert said.keys() == {"silver.events"}
        assert said["silver.events"].startswith("bronze.events has 0 rows")


def test_a_query_that_ends_as_the_signal_comes_has_not_failed() -> None:
    """The end of the query was noticed before the signal."""
    bulletin = Bulletin()

    class Ended:
        is_busy = False

        @property
        def has_ended(self) -> bool:
            bulletin.stop()
            return True

        def failure(self) -> Exception | None:
            return None

    query: Any = Ended()
    assert _wait_for_the_end({"query": query}, bulletin) is None


def test_a_signal_is_told_even_if_the_main_thread_holds_the_lock_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, told = threading.Lock(), threading.Event()

    def info(event: str) -> None:
        assert lock.acquire(timeout=60)
        assert event == STOPPING
        told.set()

    monkeypatch.setattr("consumer.queries.application.log", SimpleNamespace(info=info))
    with _bulletin() as bulletin:
        with lock:
            signal.raise_signal(signal.SIGTERM)
            assert bulletin.is_stopping
        assert told.wait(60)
