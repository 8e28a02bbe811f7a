"""The capacity model: costs fitted to measurements by least squares, and predictions from them. Pure functions.

A layer processes one micro-batch at a time. Its driver works alone, then its tasks share the executors' cores. Tasks
take more processor time the more cores an executor has, by the Universal Scalability Law (Gunther): with N cores, 1 +
contention * (N-1) + coherence * N * (N-1) times the time with one. Tasks of different executors share only the
driver, whose work grows with the number of tasks. All layers share one driver and the same cores.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import inf, sqrt
from typing import Any

import numpy as np

FILES, ROWS, TASKS, DATA_FILES, SNAPSHOTS = "files", "rows", "tasks", "data_files", "snapshots"
REMEMBERED = "remembered"
"""Rows of silver within the horizon: each micro-batch looks up its keys in them."""
SILVER = "silver"
_STEPS = 60
_NOT_OF_DRIVER = ("tasks", "waiting for S3", "looking keys up", "waiting for the catalog")


@dataclass(frozen=True)
class Sample:
    """Time and size of a piece of work."""

    seconds: float
    units: Mapping[str, float]


@dataclass(frozen=True)
class Cost:
    """Seconds, requests or bytes of a piece of work: a fixed part, and a part per unit."""

    fixed: float
    each: Mapping[str, float] = field(default_factory=dict)

    def of(self, units: Mapping[str, float]) -> float:
        """Return the cost of work of this size; units that the cost does not depend on are ignored."""
        return self.fixed + sum(cost * units.get(unit, 0.0) for unit, cost in self.each.items())

    def unit(self, name: str) -> float:
        """Return the part per unit."""
        return self.each.get(name, 0.0)


@dataclass(frozen=True)
class Usl:
    """The Universal Scalability Law."""

    contention: float
    coherence: float

    def inflation(self, cores: float) -> float:
        """Return processor time with a number of cores, relative to one core."""
        return 1 + self.contention * (cores - 1) + self.coherence * cores * (cores - 1)

    def speedup(self, cores: float) -> float:
        """Return throughput with a number of cores, relative to one core."""
        return cores / self.inflation(cores)

    @property
    def most_useful(self) -> float:
        """Number of cores beyond which throughput decreases."""
        return sqrt(max(1 - self.contention, 0.0) / self.coherence) if self.coherence else inf


def fit_cost(samples: Sequence[Sample], units: Sequence[str]) -> Cost:
    """Fit a cost to samples: least squares of relative errors, so that small samples count; no part is negative."""
    if not samples:
        raise ValueError("There are no samples.")
    rows: Any = np.array([[1.0, *(sample.units[unit] for unit in units)] for sample in samples])
    seconds: Any = np.array([max(sample.seconds, 1e-9) for sample in samples])
    found = _nonnegative(rows / seconds[:, None], np.ones(len(samples)))
    return Cost(found[0], dict(zip(units, found[1:], strict=True)))


def fit_usl(inflations: Iterable[tuple[float, float]]) -> Usl:
    """Fit the law to pairs of cores and processor time relative to one core."""
    pairs = [pair for pair in inflations if pair[0] > 1]
    if not pairs:
        raise ValueError("There are no samples with more than one core.")
    rows: Any = np.array([[cores - 1, cores * (cores - 1)] for cores, _ in pairs])
    return Usl(*_nonnegative(rows, np.array([inflation - 1 for _, inflation in pairs])))


def error_of(predicted: float, measured: float) -> float:
    """Return the relative error of a prediction."""
    return abs(predicted - measured) / measured


def errors(cost: Cost, samples: Iterable[Sample]) -> list[float]:
    """Return the relative error of a cost for each sample."""
    return [error_of(cost.of(sample.units), sample.seconds) for sample in samples if sample.seconds > 0]


def _nonnegative(rows: Any, wanted: Any) -> list[float]:
    """Return the least-squares solution without negative coefficients, the best over all subsets of columns."""
    columns = rows.shape[1]
    scale = np.linalg.norm(rows, axis=0)
    best, least = np.zeros(columns), float(np.linalg.norm(wanted))
    for count in range(1, columns + 1):
        for chosen in map(list, combinations([each for each in range(columns) if scale[each]], count)):
            found, *_ = np.linalg.lstsq(rows[:, chosen] / scale[chosen], wanted, rcond=None)
            if (found < 0).any():
                continue
            left = float(np.linalg.norm(rows[:, chosen] @ (found / scale[chosen]) - wanted))
            if left < least * (1 - 1e-9):
                best, least = np.zeros(columns), left
                best[chosen] = found / scale[chosen]
    return [float(each) for each in best]


@dataclass(frozen=True)
class LayerModel:
    """Costs of a micro-batch of a layer, in processor seconds."""

    tasks: Cost
    driver: Cost  # of the driver's Python and JVM
    python: Cost  # of the driver's Python alone, a single thread shared by all layers
    usl: Usl
    commits: int  # number of tables with a commit
    jobs: int  # number of Spark jobs, each with a task for every group of files
    data_files: int  # number that a task writes
    catalog_requests: float = 0.0
    s3_requests: Cost = field(default_factory=lambda: Cost(0.0))  # for a micro-batch with one task

    def in_tasks(self) -> "LayerModel":
        """Return the layer with the driver's work per row moved to tasks."""

        def without(cost: Cost) -> Cost:
            return Cost(cost.fixed, {unit: each for unit, each in cost.each.items() if unit not in moved})

        moved = (ROWS, REMEMBERED)
        each = {unit: self.tasks.unit(unit) + self.driver.unit(unit) for unit in moved}
        tasks = Cost(self.tasks.fixed, {**self.tasks.each, **each})
        return replace(self, tasks=tasks, driver=without(self.driver), python=without(self.python))


@dataclass(frozen=True)
class Limits:
    """Limits of micro-batches, and of their division into tasks."""

    files: int
    bytes_at_least: int
    bytes_per_core: int
    silver_rows: int
    bytes_per_group: int
    groups_per_core: int

    def most_bytes(self, cores: int) -> int:
        """Return the maximum bytes of a micro-batch of bronze."""
        return max(self.bytes_at_least, cores * self.bytes_per_core)


@dataclass(frozen=True)
class Model:
    """The pipeline."""

    layers: Mapping[str, LayerModel]  # bronze first
    trigger: Cost  # added by the query to a micro-batch of bronze
    task: float  # driver's time for one more task
    commit: Cost  # to one table
    look_up: float  # task time for one more remembered row
    limits: Limits
    remembered_in_driver: float = inf  # maximum number of rows whose keys the driver keeps in memory
    executor_cores: int = 4  # number that shares a machine's memory
    discovery: Cost = Cost(0.0)  # time of a trigger to find landed files
    included_tasks: int = 4  # maximum number of tasks in the measurements of the layers


@dataclass(frozen=True)
class Shape:
    """Properties of the landed data and of the lake."""

    rows_per_file: float
    bytes_per_row: float
    horizon: float = 0.0  # of silver, in seconds
    latency: float = 0.0  # of a request to the catalog, in seconds
    snapshots: float = 0.0  # of each table
    storage_latency: float = 0.0  # of a request to S3, in seconds
    look_latency: float = 0.0  # of the driver's read of a data file, in seconds


@dataclass(frozen=True)
class Batch:
    """Size of a micro-batch."""

    files: float
    rows: float
    tasks: float


def largest_batch(model: Model, layer: str, cores: int, shape: Shape) -> Batch:
    """Return the largest micro-batch of a layer. Layers after bronze process whole micro-batches of bronze."""
    limits = model.limits
    bytes_per_file = shape.rows_per_file * shape.bytes_per_row
    files = max(min(limits.files, limits.most_bytes(cores) / bytes_per_file), 1.0)
    if layer != next(iter(model.layers)):
        files = max(files, limits.silver_rows / shape.rows_per_file)
    batch = batch_of(model, files, cores, shape)
    return batch if layer == next(iter(model.layers)) else replace(batch, tasks=min(batch.tasks, cores))


def batch_of(model: Model, files: float, cores: int, shape: Shape) -> Batch:
    """Return a micro-batch with a number of files."""
    limits, rows = model.limits, files * shape.rows_per_file
    wanted = 1 + rows * shape.bytes_per_row // limits.bytes_per_group
    return Batch(files, rows, max(min(wanted, files, limits.groups_per_core * cores), 1.0))


def seconds_by_part(
    model: Model, layer: str, batch: Batch, cores: int, shape: Shape, remembered: float = 0.0
) -> dict[str, float]:
    """Return the seconds of each part of a micro-batch; the parts run one after another."""
    costs, units = model.layers[layer], _units(model, batch, remembered)
    is_first = layer == next(iter(model.layers))
    more = max(batch.tasks - model.included_tasks, 0.0)
    of_data_file = model.commit.unit(DATA_FILES) + shape.look_latency
    return {
        "discovery": model.discovery.of(units) if is_first else 0.0,
        "trigger": model.trigger.of(units) if is_first else 0.0,
        "driver": costs.driver.of(units),
        "scheduling": model.task * costs.jobs * more,
        "data files of commits": of_data_file * costs.data_files * more,
        "snapshots of commits": model.commit.unit(SNAPSHOTS) * costs.commits * shape.snapshots,
        "waiting for the catalog": costs.catalog_requests * shape.latency,
        "tasks": costs.tasks.of(units) * _inflation(model, layer, cores) / min(cores, batch.tasks),
        "waiting for S3": costs.s3_requests.fixed * shape.storage_latency
        + _waits(model, layer, batch, shape) / min(cores, batch.tasks),
        "looking keys up": _look_up(model, layer, remembered) * _inflation(model, layer, cores) / cores,
    }


def _units(model: Model, batch: Batch, remembered: float) -> dict[str, float]:
    in_driver = min(remembered, model.remembered_in_driver)
    return {FILES: batch.files, ROWS: batch.rows, TASKS: batch.tasks, REMEMBERED: in_driver}


def _inflation(model: Model, layer: str, cores: int) -> float:
    return model.layers[layer].usl.inflation(min(cores, model.executor_cores))


def _waits(model: Model, layer: str, batch: Batch, shape: Shape) -> float:
    """Return the time that tasks of bronze wait for landed files, which each task reads one by one."""
    return batch.files * shape.storage_latency if layer == next(iter(model.layers)) else 0.0


def _look_up(model: Model, layer: str, remembered: float) -> float:
    """Return the time of tasks to look up keys in rows that the driver does not have in memory."""
    return model.look_up * max(remembered - model.remembered_in_driver, 0.0) if layer == SILVER else 0.0


def use_of(model: Model, rows_per_second: float, cores: int, shape: Shape) -> dict[str, float]:
    """Return the share of each resource used by a load, with the largest micro-batches; above 1, it is exceeded."""
    found, of_cores, of_python = {}, 0.0, 0.0
    remembered = rows_per_second * shape.horizon
    for name, layer in model.layers.items():
        batch = largest_batch(model, name, cores, shape)
        units, count = _units(model, batch, remembered), rows_per_second / batch.rows
        parts = seconds_by_part(model, name, batch, cores, shape, remembered)
        found[f"{name}, one micro-batch at a time"] = count * sum(parts.values())
        in_tasks = layer.tasks.of(units) + _look_up(model, name, remembered)
        of_cores += count * (in_tasks * _inflation(model, name, cores) + _waits(model, name, batch, shape))
        of_python += count * layer.python.of(units)
    return found | {"cores of executors": of_cores / cores, "the driver's Python": of_python}


def breaks_first(used: Mapping[str, float]) -> tuple[str, float]:
    """Return the resource with the largest share in use."""
    return max(used.items(), key=lambda each: each[1])


def most_rows_per_second(model: Model, cores: int, shape: Shape) -> float:
    """Return the largest load that exceeds no resource."""
    least, most = 0.0, 1.0
    while breaks_first(use_of(model, most, cores, shape))[1] < 1:
        least, most = most, most * 2
    for _ in range(_STEPS):
        middle = (least + most) / 2
        if breaks_first(use_of(model, middle, cores, shape))[1] < 1:
            least = middle
        else:
            most = middle
    return least


@dataclass(frozen=True)
class Bill:
    """Daily costs of a load."""

    core_hours: float  # busy hours of executors
    driver_hours: float  # processor hours of the driver
    s3_requests: float
    catalog_requests: float
    micro_batches: float  # of bronze


def day_of(model: Model, rows_per_second: float, cores: int, shape: Shape) -> Bill:
    """Return the daily costs of a whole load, in the largest micro-batches, with as many pipelines as it needs."""
    rows, remembered = rows_per_second * 86_400, rows_per_second * shape.horizon
    executors = driver = s3 = catalog = 0.0
    for name, layer in model.layers.items():
        batch = largest_batch(model, name, cores, shape)
        units, count = _units(model, batch, remembered), rows / batch.rows
        parts = seconds_by_part(model, name, batch, cores, replace(shape, look_latency=0.0), remembered)
        in_tasks = layer.tasks.of(units) + _look_up(model, name, remembered)
        executors += count * (in_tasks * _inflation(model, name, cores) + _waits(model, name, batch, shape))
        driver += count * sum(parts[part] for part in parts if part not in _NOT_OF_DRIVER)
        # A data file is written by its task, and read by the driver before the commit.
        s3 += count * (layer.s3_requests.of(units) + 2 * layer.data_files * (batch.tasks - 1))
        catalog += count * layer.catalog_requests
    first = largest_batch(model, next(iter(model.layers)), cores, shape)
    return Bill(executors / 3600, driver / 3600, s3, catalog, rows / first.rows)


def with_silver_in_tasks(model: Model) -> Model:
    """Return the model with silver's decisions moved from the driver to tasks."""
    return replace(model, layers={**model.layers, SILVER: model.layers[SILVER].in_tasks()})


@dataclass(frozen=True)
class History:
    """Commits to a table over a period."""

    snapshots: float  # at the end
    last_seconds: float  # of the last commit
    hours: float  # of all commits


def history_of(commit: Cost, commits: float, kept: float = inf) -> History:
    """Return the costs of commits as snapshots accumulate, up to a number that is kept."""
    growing = min(commits, kept)
    each = commit.unit(SNAPSHOTS)
    base = commit.fixed + commit.unit(DATA_FILES)
    total = commits * base + each * (growing * max(growing - 1, 0) / 2 + (commits - growing) * growing)
    return History(growing, base + each * growing, total / 3600)
