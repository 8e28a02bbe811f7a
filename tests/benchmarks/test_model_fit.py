"""Known coefficients are recovered, and predictions follow from them."""

from dataclasses import replace
from math import inf, isclose

import pytest
from benchmarks.model_fit import (
    Batch,
    Cost,
    LayerModel,
    Limits,
    Model,
    Sample,
    Shape,
    Usl,
    breaks_first,
    day_of,
    errors,
    fit_cost,
    fit_usl,
    history_of,
    largest_batch,
    most_rows_per_second,
    seconds_by_part,
    use_of,
    with_silver_in_tasks,
)
from hypothesis import given
from hypothesis import strategies as st

SIZES = [(100.0, 1e5), (200.0, 1e4), (400.0, 4e5), (800.0, 4e4), (1600.0, 1.6e6)]
seconds = st.floats(1e-3, 10)
LIMITS = Limits(
    files=10_000,
    bytes_at_least=512 << 20,
    bytes_per_core=32 << 20,
    silver_rows=500_000,
    bytes_per_group=8 << 20,
    groups_per_core=4,
)


def pipeline(silver_row: float = 1e-6) -> Model:
    """Return a model with a cheap driver in bronze, and a driver that decides each row in silver."""
    layer = {"usl": Usl(0.01, 0.0), "commits": 3, "jobs": 1, "data_files": 2, "catalog_requests": 10.0}
    bronze = LayerModel(Cost(0.1, {"rows": 1e-5}), Cost(0.2, {"files": 1e-4}), Cost(0.1, {"files": 1e-4}), **layer)
    driver = Cost(0.2, {"rows": silver_row})
    silver = LayerModel(Cost(0.1, {"rows": 5e-6}), driver, driver, **layer)
    commit = Cost(0.05, {"data_files": 1e-3, "snapshots": 2e-5})
    return Model({"bronze": bronze, "silver": silver}, Cost(0.3, {"files": 5e-5}), 2e-3, commit, 1e-6, LIMITS, 1e6)


@given(seconds, st.floats(1e-6, 1e-2), st.floats(1e-9, 1e-4))
def test_a_cost_is_recovered_from_exact_samples(fixed: float, of_file: float, of_row: float) -> None:
    known = Cost(fixed, {"files": of_file, "rows": of_row})
    samples = [Sample(known.of(units), units) for files, rows in SIZES if (units := {"files": files, "rows": rows})]
    found = fit_cost(samples, ["files", "rows"])
    assert max(errors(found, samples)) < 1e-4
    held_out = {"files": 2400.0, "rows": 2.4e6}
    assert isclose(found.of(held_out), known.of(held_out), rel_tol=1e-3)


@given(st.floats(1e-3, 1), st.floats(1e-4, 1e-2), st.lists(st.floats(-0.05, 0.05), min_size=5, max_size=5))
def test_noise_changes_a_prediction_by_little_more_than_itself(fixed: float, each: float, noise: list[float]) -> None:
    known = Cost(fixed, {"files": each})
    samples = [
        Sample(known.of({"files": files}) * (1 + off), {"files": files})
        for (files, _), off in zip(SIZES, noise, strict=True)
    ]
    found = fit_cost(samples, ["files"])
    assert isclose(found.of({"files": 2400.0}), known.of({"files": 2400.0}), rel_tol=0.25)


@given(st.lists(st.tuples(st.floats(1, 1000), st.floats(1e-6, 100)), min_size=1, max_size=8))
def test_no_part_of_a_cost_is_negative(found: list[tuple[float, float]]) -> None:
    cost = fit_cost([Sample(took, {"files": files}) for files, took in found], ["files"])
    assert cost.fixed >= 0
    assert cost.unit("files") >= 0


@given(st.floats(0, 0.5), st.floats(0, 0.05))
def test_contention_and_coherence_are_recovered(contention: float, coherence: float) -> None:
    known = Usl(contention, coherence)
    found = fit_usl([(cores, known.inflation(cores)) for cores in (1, 2, 4)])
    assert isclose(found.speedup(16), known.speedup(16), rel_tol=1e-6)


def test_less_processor_time_with_more_cores_is_no_negative_contention() -> None:
    assert fit_usl([(1, 1.0), (2, 0.95), (4, 0.9)]) == Usl(0, 0)


@pytest.mark.parametrize(("law", "most"), [(Usl(0.0, 0.0), inf), (Usl(0.1, 0.0), inf), (Usl(0.0, 0.01), 10.0)])
def test_coherence_says_from_how_many_cores_on_more_of_them_harm(law: Usl, most: float) -> None:
    assert law.most_useful == most


def test_nothing_can_be_fitted_to_nothing() -> None:
    with pytest.raises(ValueError, match="no samples"):
        fit_cost([], ["files"])
    with pytest.raises(ValueError, match="more than one core"):
        fit_usl([(1, 1.0)])


@given(st.integers(1, 1000), st.floats(1, 10_000))
def test_no_layer_takes_more_than_the_limits_say(cores: int, rows_per_file: float) -> None:
    shape = Shape(rows_per_file, 280)
    batch = largest_batch(pipeline(), "bronze", cores, shape)
    assert 1 <= batch.files <= LIMITS.files
    assert 1 <= batch.tasks <= 4 * cores
    assert largest_batch(pipeline(), "silver", cores, shape).rows >= batch.rows


def test_the_parts_of_a_micro_batch() -> None:
    shape = Shape(1_000, 280, latency=0.5, snapshots=1_000, storage_latency=0.01, look_latency=0.01)
    parts = seconds_by_part(pipeline(), "bronze", Batch(400, 400_000, 14), 10, shape)
    assert parts == pytest.approx(
        {
            "discovery": 0.0,
            "trigger": 0.32,
            "driver": 0.24,
            "scheduling": 0.02,
            "data files of commits": 0.22,
            "snapshots of commits": 0.06,
            "waiting for the catalog": 5.0,
            "tasks": 4.1 * 1.03 / 10,  # four cores share an executor
            "waiting for S3": 0.4,
            "looking keys up": 0.0,
        }
    )


def test_a_driver_that_decides_each_row_breaks_first_where_there_are_many_cores() -> None:
    model, shape = pipeline(), Shape(1_000, 280)
    assert breaks_first(use_of(model, 1e6, 2, shape))[0] == "cores of executors"
    assert breaks_first(use_of(model, 1e6, 1_000, shape))[0].startswith(("silver", "the driver"))
    in_tasks = most_rows_per_second(with_silver_in_tasks(model), 1_000, shape)
    assert in_tasks > most_rows_per_second(model, 1_000, shape)


@given(st.integers(1, 1_000), st.sampled_from([0.0, 3_600.0]))
def test_the_largest_load_uses_all_of_what_breaks_first(cores: int, horizon: float) -> None:
    model, shape = pipeline(), Shape(1_000, 280, horizon)
    most = most_rows_per_second(model, cores, shape)
    assert isclose(breaks_first(use_of(model, most, cores, shape))[1], 1, rel_tol=1e-6)


def test_a_long_horizon_makes_looking_up_what_breaks_first() -> None:
    model, load = pipeline(), 100_000
    short, long = (most_rows_per_second(model, 1_000, Shape(1_000, 280, hours * 3_600)) for hours in (1, 168))
    assert long < short
    parts = seconds_by_part(
        model, "silver", Batch(1_000, 1e6, 100), 1_000, Shape(1_000, 280), remembered=load * 168 * 3_600
    )
    assert max(parts, key=parts.__getitem__) == "looking keys up"


@given(st.integers(1, 1_000))
def test_deciding_in_tasks_moves_work_and_makes_none(cores: int) -> None:
    model, shape = pipeline(), Shape(1_000, 280)
    free = {name: replace(layer, usl=Usl(0, 0)) for name, layer in model.layers.items()}
    before = replace(model, layers=free)
    one, other = (day_of(each, 1_000, cores, shape) for each in (before, with_silver_in_tasks(before)))
    assert isclose(one.core_hours + one.driver_hours, other.core_hours + other.driver_hours, rel_tol=1e-9)


def test_a_day_is_counted_in_micro_batches_and_requests() -> None:
    bill = day_of(pipeline(), 1_000, 10, Shape(1_000, 280))
    assert bill.micro_batches == pytest.approx(86_400_000 / (512 * 1024**2 / 280))
    assert bill.catalog_requests == pytest.approx(20 * bill.micro_batches)


@given(st.integers(1, 2_000), st.integers(1, 2_000))
def test_a_history_is_the_sum_of_its_commits(commits: int, kept: int) -> None:
    commit = Cost(0.1, {"snapshots": 1e-3})
    one_by_one = sum(0.1 + 1e-3 * min(before, kept) for before in range(commits))
    assert isclose(history_of(commit, commits, kept).hours * 3600, one_by_one, rel_tol=1e-9)


def test_maintenance_bounds_the_last_commit() -> None:
    commit = Cost(0.05, {"snapshots": 2e-5, "data_files": 1e-3})
    assert history_of(commit, 777_600).last_seconds > 15
    assert history_of(commit, 777_600, kept=1_000).last_seconds < 0.1
