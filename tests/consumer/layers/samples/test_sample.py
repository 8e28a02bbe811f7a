"""Samples and anomalies equal the plain model, with crashes, other tools and changes in between."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.consumer.crashes import crash_before
from tests.consumer.lake import SessionOf, rows
from tests.consumer.layers.samples.lakes import (
    BY_WINDOW,
    NOON,
    SECOND,
    SILVER,
    TEXT,
    Silver,
    check,
    fill,
    found_anomalies,
    found_samples,
    samples_layer,
    sensors_lake,
    write_samples,
)
from tests.operations import tables

from consumer.iceberg.append import OpenTable, open_table
from consumer.layers import upstream
from consumer.layers.rebuild import rebuild
from consumer.layers.samples import sample
from consumer.layers.samples.reading import Reading
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.gold.samples import Samples
from lakeproof.settings import Settings
from lakeproof.tables.evolution import renaming
from lakeproof.tables.names import silver_query
from lakeproof.tables.schemas import ensure_silver_tables

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(lake_settings: Settings, tmp_path: Path) -> Settings:
    return sensors_lake(lake_settings, tmp_path)


@pytest.fixture
def session(lake: Settings, session_of: SessionOf) -> SparkSession:
    return session_of(lake)


@pytest.fixture
def silver(session: SparkSession, lake: Settings) -> Silver:
    return Silver(session, lake)


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return crash_before(monkeypatch)


def at(second: float, value: float = 1.0, device: str = "a") -> Reading:
    return Reading(NOON + int(second * SECOND), device, value)


def some(chance: random.Random, now: float) -> list[Reading]:
    """Return readings of the last minute, some of them late, with every kind of anomaly."""
    return [
        at(now - chance.choice((0, 5, 20, 50)) * chance.random(), chance.choice((-2.0, 0.0, 1.0, 1.0, 800.0)), device)
        for device in ("a", "b", "c")
        for _ in range(chance.randint(0, 8))
    ]


def test_a_field_that_is_renamed_while_it_runs_keeps_its_name_in_the_product(
    lake: Settings, session: SparkSession, silver: Silver
) -> None:
    samples = write_samples(lake, TEXT)
    silver.keep([at(0), at(20, -1.0), at(300)])
    table = open_catalog(lake).load_table(SILVER.kept)
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.rename_column("sensor_freq", "frequency")
        transaction.set_properties(renaming({"sensor_freq": "frequency"}))
    assert fill(session, lake, samples) == 1
    check(lake, silver, samples)


@pytest.mark.all
@pytest.mark.parametrize(("text", "seed"), [(TEXT, 1), (BY_WINDOW, 3)])
def test_random_readings_are_as_the_model_says_over_crashes(
    lake: Settings, session: SparkSession, silver: Silver, crash: Callable[[int], None], text: str, seed: int
) -> None:
    chance, samples, now = random.Random(seed), write_samples(lake, text), 0.0
    for round_ in range(5):
        for _ in range(chance.randint(1, 2)):  # samples take one or more commits of silver at once
            now += chance.choice((3, 20, 45, 130))
            silver.keep(*(some(chance, now) for _ in range(chance.randint(1, 3))))
        if round_ in (1, 3):
            crash(round_ // 2)  # before the anomalies; between them and the samples
            with pytest.raises(LakeproofError, match="as asked"):
                fill(session, lake, samples)
            now += 40
            silver.keep(some(chance, now), [at(now)])  # and silver continues
        fill(session, lake, samples)
        of_windows, of_detectors = check(lake, silver, samples)
        assert fill(session, lake, samples) == 0
    assert min(of_windows, of_detectors) > 10


def test_a_window_is_published_when_nothing_more_can_come(
    lake: Settings, session: SparkSession, silver: Silver
) -> None:
    samples = write_samples(lake, TEXT)
    silver.keep([at(0), at(10, -1), at(59)])
    assert fill(session, lake, samples) == 1  # windows before noon, and the anomaly of 10 s: the horizon is 29 s
    assert [row[2:5] for row in found_anomalies(lake, samples)] == [("a", *_time_and_value(at(10, -1)))]
    silver.keep([at(60), at(89.9), at(35, 5)])
    fill(session, lake, samples)
    assert {row[0] for row in found_samples(lake, samples)} == {_time_and_value(at(-30))[0]}
    silver.keep([at(90)])
    fill(session, lake, samples)
    check(lake, silver, samples)
    of_noon = [row for row in found_samples(lake, samples) if row[0] == _time_and_value(at(0))[0]]
    assert [(row[4], row[5]) for row in of_noon] == [(1, ["first"]), (-1, ["anomaly"]), (5, ["middle"]), (1, ["last"])]
    silver.keep([at(90)])
    assert fill(session, lake, samples) == 0  # the horizon has not moved


def _time_and_value(reading: Reading) -> tuple[object, float]:
    from tests.consumer.layers.samples.model import time

    return time(reading.at), reading.value


@pytest.mark.all
def test_what_silver_is_about_to_commit_is_not_sampled(
    lake: Settings, session: SparkSession, silver: Silver, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = write_samples(lake, TEXT)
    silver.keep([at(0), at(200)])
    real = upstream.open_table

    def and_silver_goes_on(*arguments: object) -> object:
        opened = real(*arguments)  # type: ignore[arg-type]
        if arguments[1] == SILVER.kept and silver.end == 1:
            silver.keep([at(190, -5), at(400)])
        return opened

    monkeypatch.setattr(upstream, "open_table", and_silver_goes_on)
    assert fill(session, lake, samples, most=1) == 1
    assert fill(session, lake, samples) == 1
    check(lake, silver, samples)


@pytest.mark.all
def test_maintenance_by_other_tools_changes_nothing(lake: Settings, session: SparkSession, silver: Silver) -> None:
    samples = write_samples(lake, TEXT)
    for number in range(3):
        silver.keep([at(100 * number, -1), at(100 * number + 90)])
        fill(session, lake, samples)
    tables.maintain(session, "gold.sensor_samples")
    for table in (SILVER.kept, "gold.sensor_anomalies"):
        tables.expire_all_but_last(session, table)
    check(lake, silver, samples)
    silver.keep([at(500, -1), at(600)])
    fill(session, lake, samples)
    check(lake, silver, samples)


@pytest.mark.all
def test_an_older_state_of_silver_is_not_sampled(
    lake: Settings, session: SparkSession, silver: Silver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a catalog may answer to the second of two requests."""
    samples = write_samples(lake, TEXT)
    silver.keep([at(0, -1), at(0, 2, "b")])
    older = open_table(session, SILVER.kept, silver_query("sensors"))
    silver.keep([at(200)])

    def opened(spark: SparkSession, name: str, query: str) -> OpenTable:
        return older if name == SILVER.kept else open_table(spark, name, query)

    with monkeypatch.context() as patch:
        patch.setattr(sample, "open_table", opened)
        with pytest.raises(UnavailableError, match="does not show the newest state"):
            fill(session, lake, samples)
    assert found_samples(lake, samples) == found_anomalies(lake, samples) == []
    fill(session, lake, samples)
    check(lake, silver, samples)


@pytest.mark.all
def test_another_product_is_refused_until_it_is_rebuilt(lake: Settings, session: SparkSession, silver: Silver) -> None:
    silver.keep([at(0, -1), at(0, 2, "b"), at(200)])
    samples = write_samples(lake, TEXT)
    fill(session, lake, samples)
    before = found_samples(lake, samples)
    other = write_samples(lake, TEXT.replace("by: device", "by: window").replace("readings: 10", "readings: 11"))
    silver.keep([at(300)])
    with pytest.raises(LakeproofError, match="was filled for another product") as refused:
        fill(session, lake, other)
    assert "Run `consumer rebuild gold sensor_samples`" in refused.value.hint
    assert found_samples(lake, samples) == before
    done = rebuild(lake, samples_layer(lake, other), lambda: session)
    assert done.startswith("Rebuilt gold.sensor_samples and gold.sensor_anomalies from silver.sensors.")
    check(lake, silver, other)
    assert fill(session, lake, other) == 0
    assert sorted(name for _, name in open_catalog(lake).list_tables("gold")) == ["sensor_anomalies", "sensor_samples"]


@pytest.mark.all
def test_another_range_of_the_contract_is_refused(lake: Settings, session: SparkSession, silver: Silver) -> None:
    samples = write_samples(lake, TEXT)
    silver.keep([at(0), at(200)])
    fill(session, lake, samples)
    silver.keep([at(300)])
    with pytest.raises(LakeproofError, match="ranges"):
        fill(session, lake, replace(samples, minimum=-1.0))


@pytest.mark.all
def test_tables_of_different_points_in_time_are_refused(lake: Settings, session: SparkSession, silver: Silver) -> None:
    samples = write_samples(lake, TEXT)
    for number in range(2):
        silver.keep([at(100 * number, -1), at(100 * number + 90)])
        fill(session, lake, samples)
    tables.roll_back(session, "gold.sensor_anomalies")
    silver.keep([at(500)])
    with pytest.raises(LakeproofError, match="rolled back or replaced") as refused:
        fill(session, lake, samples)
    assert refused.value.hint
    open_catalog(lake).drop_table("gold.sensor_anomalies")
    with pytest.raises(LakeproofError, match="has no marker") as refused:
        fill(session, lake, samples)
    assert "Run `consumer rebuild gold sensor_samples`" in refused.value.hint
    rebuild(lake, samples_layer(lake, samples), lambda: session)
    check(lake, silver, samples)
    silver.keep([at(600)])
    fill(session, lake, samples)
    open_catalog(lake).drop_table("gold.sensor_samples")
    with pytest.raises(LakeproofError, match="different points in time"):
        fill(session, lake, samples)


@pytest.mark.all
def test_a_rebuilt_silver_is_refused(lake: Settings, session: SparkSession, silver: Silver) -> None:
    samples = write_samples(lake, TEXT)
    silver.keep([at(0), at(200)])
    fill(session, lake, samples)
    catalog = open_catalog(lake)
    catalog.drop_table(SILVER.kept)
    ensure_silver_tables(catalog, load_contract(lake.contracts, "sensors"), SILVER)
    rebuilt = Silver(session, lake)
    rebuilt.keep([at(0), at(300)])
    with pytest.raises(LakeproofError, match=r"filled from another silver\.sensors") as refused:
        fill(session, lake, samples)
    assert "Run `consumer rebuild gold sensor_samples`" in refused.value.hint


@pytest.mark.all
def test_a_rebuild_that_was_interrupted_is_begun_again(
    lake: Settings, session: SparkSession, silver: Silver, crash: Callable[[int], None]
) -> None:
    samples = write_samples(lake, TEXT)
    silver.keep([at(0, -1), at(200)])
    fill(session, lake, samples)
    crash(1)
    with pytest.raises(LakeproofError, match="as asked"):
        rebuild(lake, samples_layer(lake, samples), lambda: session)
    silver.keep([at(300, -1), at(400)])
    rebuild(lake, samples_layer(lake, samples), lambda: session)
    check(lake, silver, samples)
    assert len(open_catalog(lake).list_tables("gold")) == 2


def test_samples_cannot_be_rebuilt_before_there_is_silver(lake: Settings) -> None:
    open_catalog(lake).drop_table(SILVER.kept)
    with pytest.raises(UsageError, match=r"silver\.sensors does not exist yet"):
        rebuild(lake, samples_layer(lake, write_samples(lake, TEXT)), lambda: pytest.fail("no session is needed"))


@pytest.mark.all
def test_what_is_read_again_does_not_grow_with_the_stream(
    lake: Settings, session: SparkSession, silver: Silver, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, real, read = write_samples(lake, TEXT), sample.readings, []

    def and_count(rows: DataFrame, samples: Samples) -> DataFrame:
        read.append(rows.count())
        return real(rows, samples)

    monkeypatch.setattr(sample, "readings", and_count)
    for minute in range(1, 9):
        silver.keep([at(60 * minute - second, float(second)) for second in range(60)])
        fill(session, lake, samples)
    # Each time, both tables read a new minute, and the one before it, for open windows and detectors.
    assert read == [29, 29, 89, 89, *(12 * [120])]
    check(lake, silver, samples)


@pytest.mark.all
def test_partitions_are_days_of_window_starts(lake: Settings, session: SparkSession, silver: Silver) -> None:
    samples = write_samples(lake, TEXT)
    midnight = 12 * 3_600
    silver.keep([at(midnight - 10), at(midnight + 10, -1), at(midnight + 200)])
    fill(session, lake, samples)
    check(lake, silver, samples)
    days = {
        row.d
        for row in session.sql("SELECT partition.window_start_day d FROM lake.gold.sensor_samples.partitions").collect()
    }
    assert len(days) == 2
    assert {row["_updated_at"].tzinfo is not None for row in rows(lake, "gold.sensor_anomalies")} == {True}
