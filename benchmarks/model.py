"""A capacity model of the pipeline: measure phases separately, fit costs, and predict loads beyond one machine.

With ``--predict``, use the measurements in docs/benchmarks/model.json.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import Any

from benchmarks.harness import Goal, Lines, Options, Report, Table, machine
from benchmarks.model_fit import (
    DATA_FILES,
    FILES,
    REMEMBERED,
    ROWS,
    SILVER,
    SNAPSHOTS,
    TASKS,
    Cost,
    LayerModel,
    Limits,
    Model,
    Sample,
    Shape,
    Usl,
    breaks_first,
    day_of,
    error_of,
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
from benchmarks.report import DOCS, read_report
from consumer.sources.files.discovery import TAKEN_AT_ONCE
from consumer.sources.files.source import BYTES_PER_CORE, BYTES_PER_GROUP, GROUPS_PER_CORE, LEAST_BYTES_OF_MICRO_BATCH

Samples = Mapping[str, Sequence[Mapping[str, Any]]]

BRONZE, GOLD = "bronze", "gold"
LAYERS = {BRONZE: (FILES, ROWS), SILVER: (ROWS, REMEMBERED), GOLD: (ROWS,)}
_COMMITS = {BRONZE: 3, SILVER: 4, GOLD: 1}
_JOBS = {BRONZE: 1, SILVER: 2, GOLD: 1}
_DATA_FILES = {BRONZE: 2, SILVER: 1, GOLD: 0}
PHASES = {
    "list": (FILES,),
    "list again": (FILES,),
    "list recent": (),
    "plan": (FILES,),
    "ledger": (FILES,),
    "read": (FILES, ROWS),
    "judge": (FILES, ROWS),
    "write": (TASKS, ROWS),
}
# The consumer's defaults: see also src/lakeproof/settings.
LIMITS = Limits(
    files=10_000,
    bytes_at_least=LEAST_BYTES_OF_MICRO_BATCH,
    bytes_per_core=BYTES_PER_CORE,
    silver_rows=500_000,
    bytes_per_group=BYTES_PER_GROUP,
    groups_per_core=GROUPS_PER_CORE,
)
_REMEMBERED_IN_DRIVER = 1_000_000
CORES = (10, 100, 1_000)
DAYS, EVERY_SECONDS, KEPT_SNAPSHOTS = 90, 10, 1_000
ZONE = 10_000_000
_FILES_OF_A_LISTING = 1_000
_CATALOG_LATENCY, _STORAGE_LATENCY, _HORIZON_HOURS = 0.05, 0.02, 1
_HOUR, _DAY = 3_600, 86_400
_ENOUGH = 0.02  # processor seconds of workers: less than this is noise, or the driver did all the work
_AT_MOST = 25.0

ABOUT = [
    "What each phase costs, measured apart at several sizes; a line through that by least squares of relative errors, "
    "with no negative part; and what follows for loads that this machine cannot take. *Seconds* are **processor "
    "seconds** unless a column says otherwise: this machine has two cores, so four of Spark's (`local[4]`) share them, "
    "and elapsed time would say little. That leaves out waiting, which is added by requests and their latency. See "
    "[capacity](../operations/capacity.md) for assumptions, and for what was checked.",
    "*List*: all of a landing zone for the first time, and into the landing log; *list again*: a sweep that finds "
    "nothing new; *list recent*: what a trigger does. *Plan*: read the landing log, divide files among tasks, pickle "
    "them. *Read*, *judge*, *write*: a task of bronze, in one process. *Ledger*: its rows and their file. *Trigger*: "
    "what the query of bronze adds to a micro-batch, elapsed. *Schedule*: tasks that do nothing, "
    "without the threads that run them. *Commit*: one append to one table. *Look up*: rows of silver that are "
    "searched for keys. *Driver*: its Python and JVM; *tasks*: Spark's Python workers.",
]


@dataclass(frozen=True)
class Load:
    """A load on the pipeline."""

    name: str
    files_per_second: float
    rows_per_file: float

    @property
    def rows_per_second(self) -> float:
        """Events per second."""
        return self.files_per_second * self.rows_per_file


LOADS = (
    Load("1,000,000 events/s, 10,000 files a minute", 10_000 / 60, 6_000),
    Load("1,000,000 events/s, files of 1,000", 1_000, 1_000),
    Load("10,000 files a minute of 100 events", 10_000 / 60, 100),
)


def run(options: Options) -> Report:
    """Measure, or read earlier measurements, and predict."""
    if options.predict:
        before = read_report(DOCS / "model.json")
        return report_of(before.raw, before.machine, before.options)
    from benchmarks.model_measure import measure, sizes  # starts servers, which a prediction does not need

    about_machine = machine()
    measured = measure(options)
    return report_of(measured, about_machine, {"files": sizes(options), "runs": options.repeat})


def report_of(measured: Samples, about_machine: dict[str, str], options: dict[str, Any]) -> Report:
    """Make the report from samples."""
    costs = costs_of(measured)
    laws = laws_of(measured)
    model = model_of(measured, costs, laws)
    shape = _shape(measured, _HORIZON_HOURS * _HOUR)
    checks = held_out(measured, costs, laws)
    return Report(
        name="model",
        title="Capacity model",
        about=ABOUT,
        goals=[Goal(f"prediction: {check.what}", check.error * 100, at_most=_AT_MOST, unit="%") for check in checks],
        tables=[
            Table("Held out", ["not fitted", "predicted, s", "measured, s", "off by"], [c.row() for c in checks]),
            _costs_table(costs),
            _laws_table(laws, measured),
            _latency_table(measured),
            _capacity_table(model, shape),
            *(_load_table(model, shape, load, memory_of(measured)) for load in LOADS),
            _horizon_table(model, shape),
            _zone_table(measured, costs),
            _history_table(measured, costs),
        ],
        machine=about_machine,
        options=options,
        lines=[_commit_lines(costs), _capacity_lines(model, shape)],
        raw=measured,
    )


@dataclass(frozen=True)
class Fitted:
    """A cost and the samples it was fitted to."""

    cost: Cost
    samples: Sequence[Sample]

    @property
    def middle_error(self) -> float:
        """Median of the relative errors of the samples."""
        found = errors(self.cost, self.samples)
        return median(found) if found else 0.0


def _fitted(samples: Iterable[Mapping[str, Any]], units: Sequence[str], what: str = "seconds") -> Fitted:
    """Fit a cost to the samples that are not held out. Units that do not vary are omitted."""
    found = [
        Sample(float(each[what]), {unit: float(each.get(unit, 0)) for unit in units})
        for each in samples
        if not each.get("held_out")
    ]
    varied = [unit for unit in units if len({sample.units[unit] for sample in found}) > 1]
    return Fitted(fit_cost(found, varied), found)


def costs_of(measured: Samples) -> dict[str, Fitted]:
    """Return the cost of each phase, and of each layer with one core."""
    phases, commits, triggers = measured["phases"], measured["commits"], measured["triggers"]
    largest = max(each["files"] for each in phases if each["phase"] == "list")
    fitted = [each for each in phases if not (each["phase"] in PHASES and _is_largest(each, largest))]
    found = {name: _fitted(_of(fitted, "phase", name), units) for name, units in PHASES.items()}
    found["schedule"] = _fitted(_with(_of(triggers, "layer", "schedule"), _scheduling), (TASKS,))
    found["trigger"] = _fitted(_of(triggers, "layer", "trigger"), (FILES,), "wall")
    found["commit"] = _fitted(_of(commits, "phase", "commit"), (DATA_FILES, SNAPSHOTS))
    found["look up"] = _fitted(_of(measured["layers"], "layer", "look up"), (REMEMBERED,))
    found["list in a bucket"] = _fitted(_of(measured["latency"], "phase", "list in a bucket"), (FILES,))
    for layer, units in LAYERS.items():
        alone = [each for each in _of(measured["layers"], "layer", layer) if each["cores"] == 1]
        found[f"{layer}, driver"] = _fitted(_with(alone, _driver), units)
        found[f"{layer}, driver's Python"] = _fitted(alone, units, "driver")
        found[f"{layer}, tasks"] = _fitted(_in_tasks(alone), units, "workers")
    return found


def laws_of(measured: Samples) -> dict[str, Usl]:
    """Return contention and coherence of the tasks of each layer."""
    return {layer: fit_usl(_inflations(measured, layer)) for layer in LAYERS}


def model_of(measured: Samples, costs: Mapping[str, Fitted], laws: Mapping[str, Usl]) -> Model:
    """Return the model of the measured pipeline."""
    still = [each for each in measured["latency"] if each.get("delay") == 0]
    layers = {}
    for name in LAYERS:
        mine = [each | {"requests": sum(each["s3"].values())} for each in _of(still, "layer", name)]
        _, catalog_requests = _without_delay(measured, name)
        layers[name] = LayerModel(
            tasks=costs[f"{name}, tasks"].cost,
            driver=costs[f"{name}, driver"].cost,
            python=costs[f"{name}, driver's Python"].cost,
            usl=laws[name],
            commits=_COMMITS[name],
            jobs=_JOBS[name],
            data_files=_DATA_FILES[name],
            catalog_requests=catalog_requests,
            s3_requests=_fitted(mine, (FILES,), "requests").cost,
        )
    return Model(
        layers=layers,
        trigger=costs["trigger"].cost,
        task=costs["schedule"].cost.unit(TASKS),
        commit=costs["commit"].cost,
        look_up=costs["look up"].cost.unit(REMEMBERED),
        limits=LIMITS,
        remembered_in_driver=_REMEMBERED_IN_DRIVER,
        discovery=Cost(costs["list recent"].cost.fixed, {FILES: costs["list"].cost.unit(FILES)}),
    )


@dataclass(frozen=True)
class Check:
    """A prediction of a size that was not fitted, and its measured value."""

    what: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative error."""
        return error_of(self.predicted, self.measured)

    def row(self) -> list[str]:
        """Return a row for the report."""
        return [self.what, f"{self.predicted:.3g}", f"{self.measured:.3g}", f"{self.error:.0%}"]


def held_out(measured: Samples, costs: Mapping[str, Fitted], laws: Mapping[str, Usl]) -> list[Check]:
    """Predict each size that was not fitted: 1.5 or 2 times the largest fitted size."""
    found = []
    for layer in LAYERS:
        for cores in sorted({each["cores"] for each in measured["layers"]}):
            mine = [
                each for each in _of(measured["layers"], "layer", layer) if each["cores"] == cores and each["held_out"]
            ]
            units = mine[0]
            predicted = costs[f"{layer}, driver"].cost.of(units) + costs[f"{layer}, tasks"].cost.of(units) * laws[
                layer
            ].inflation(cores)
            took = median(_driver(each) + each["workers"] for each in mine)
            found.append(Check(f"{layer}, {units['rows']:,} rows, local[{cores}]", predicted, took))
    largest = max(each["files"] for each in measured["phases"] if each["phase"] == "list")
    for phase in ("list", "plan", "ledger"):
        took = median(each["seconds"] for each in _of(measured["phases"], "phase", phase) if each["files"] == largest)
        found.append(Check(f"{phase}, {largest:,} files", costs[phase].cost.of({FILES: largest}), took))
    last = [each for each in _of(measured["commits"], "phase", "commit") if each.get("held_out")]
    took = median(each["seconds"] for each in last)
    found.append(Check(f"commit, {last[0][SNAPSHOTS]:,} snapshots", costs["commit"].cost.of(last[0]), took))
    return found + _checks_of_latency(measured)


def _checks_of_latency(measured: Samples) -> list[Check]:
    """Predict elapsed time at the longest delay of the catalog from the number of requests counted without a delay."""
    found = []
    for each in (sample for sample in measured["latency"] if sample.get("held_out")):
        base, requests = _without_delay(measured, each["layer"])
        what = f"{each['layer']}, elapsed, catalog {each['delay']:g} s"
        found.append(Check(what, base + requests * each["delay"], each["wall"]))
    return found


def _without_delay(measured: Samples, layer: str) -> tuple[float, float]:
    """Return the seconds of a layer's micro-batch without a delay, and its number of requests to the catalog."""
    still = [each for each in _of(measured["latency"], "layer", layer) if each["delay"] == 0]
    return median(each["wall"] for each in still), median(sum(each["catalog"].values()) for each in still)


def memory_of(measured: Samples) -> dict[str, float]:
    """Return the memory of the driver's Python in bytes: per file, and per row that silver decides."""
    plan = _fitted(_of(measured["phases"], "phase", "memory of plan and ledger"), (FILES,), "bytes").cost.unit(FILES)
    silver = [each for each in _of(measured["layers"], "layer", SILVER) if each["cores"] == 1 and each["workers"]]
    # Arrow's peak so far belongs to the largest micro-batch so far.
    row = max((each["arrow_peak"] / (each[ROWS] + each[REMEMBERED]) for each in silver[-1:]), default=0.0)
    return {"file": plan, "row": row}


def _shape(measured: Samples, horizon: float) -> Shape:
    """Return the measured size of events, in files of a thousand."""
    rows = _of(measured["layers"], "layer", BRONZE)
    bytes_per_row = sum(each["bytes"] for each in rows) / sum(each[ROWS] for each in rows)
    return Shape(
        rows_per_file=1_000,
        bytes_per_row=bytes_per_row,
        horizon=horizon,
        latency=_CATALOG_LATENCY,
        snapshots=KEPT_SNAPSHOTS,
        storage_latency=_STORAGE_LATENCY,
        look_latency=_STORAGE_LATENCY,
    )


def _costs_table(costs: Mapping[str, Fitted]) -> Table:
    rows = []
    for name, fitted in costs.items():
        each = ", ".join(f"{cost * 1e6:,.3g} a {_singular(unit)}" for unit, cost in fitted.cost.each.items() if cost)
        sizes = len({tuple(sample.units.values()) for sample in fitted.samples})
        rows.append([name, f"{fitted.cost.fixed * 1e3:,.1f}", each, str(sizes), f"{fitted.middle_error:.0%}"])
    return Table("Costs", ["phase", "fixed, ms", "part, µs", "sizes", "median error of the fit"], rows)


def _laws_table(laws: Mapping[str, Usl], measured: Samples) -> Table:
    rows = []
    for layer, law in laws.items():
        whole = _whole(measured, layer)
        for name, each, pairs in (
            (f"{layer}, tasks", law, _inflations(measured, layer)),
            (f"{layer}, whole micro-batch", fit_usl(whole), whole),
        ):
            seen = {cores: median(pair[1] for pair in found) for cores, found in _by_cores(pairs)}
            most = f"{each.most_useful:,.0f}" if each.coherence else "no limit seen"
            measured_at = ", ".join(f"{cores:g}: {value:.2f}" for cores, value in seen.items())
            speedups = [f"{each.speedup(cores):,.1f}" for cores in CORES]
            rows.append([name, f"{each.contention:.4f}", f"{each.coherence:.5f}", measured_at, *speedups, most])
    columns = ["layer", "contention (sigma)", "coherence (kappa)", "time of cores, over that with 1"]
    columns += [f"speedup at {cores:,}" for cores in CORES]
    return Table("Contention and coherence", [*columns, "most useful cores"], rows)


def _latency_table(measured: Samples) -> Table:
    rows = []
    for layer in LAYERS:
        mine = _of(measured["latency"], "layer", layer)
        still = [each for each in mine if each["delay"] == 0]
        base, requests = _without_delay(measured, layer)
        delayed = sorted((each for each in mine if each["delay"]), key=lambda each: each["delay"])
        waits = ", ".join(
            f"{each['delay']:g} s: {each['wall']:.1f} ({base + requests * each['delay']:.1f})" for each in delayed
        )
        s3 = _fitted([e | {"n": sum(e["s3"].values())} for e in still], (FILES,), "n").cost
        rows.append([layer, f"{requests:.0f}", f"{base:.2f}", waits, f"{s3.fixed:.0f} + {s3.unit(FILES):.1f} a file"])
    columns = ["micro-batch of", "requests to the catalog", "elapsed without delay, s"]
    return Table(
        "A slow REST catalog, and requests",
        [*columns, "elapsed at each delay, s (predicted by the requests)", "requests to S3"],
        rows,
    )


def _variants(model: Model, shape: Shape) -> dict[str, tuple[Model, Shape]]:
    """Return the pipeline, the worst case of contention, and possible changes, each on top of the previous one."""
    in_tasks = with_silver_in_tasks(model)
    return {
        "as it is": (model, shape),
        "contention as if all cores were of one machine": (replace(model, executor_cores=max(CORES)), shape),
        "silver decides in tasks": (in_tasks, shape),
        "and data files are looked at together before a commit": (in_tasks, replace(shape, look_latency=0.0)),
    }


def _capacity_table(model: Model, shape: Shape) -> Table:
    rows = []
    for cores in CORES:
        for name, (each, where) in _variants(model, shape).items():
            most = most_rows_per_second(each, cores, where)
            first, second = sorted(use_of(each, most, cores, where).items(), key=lambda pair: -pair[1])[:2]
            largest = _largest_part(each, first[0], cores, where, most)
            rows.append(
                [f"{cores:,} cores, {name}", f"{most:,.0f}", first[0], largest, f"{second[0]} ({second[1]:.0%})"]
            )
    columns = ["", "events/s at most", "breaks first", "of which the most", "next (used by then)"]
    return Table(f"By cores, files of {shape.rows_per_file:,.0f}, horizon of {_HORIZON_HOURS} h", columns, rows)


def _load_table(model: Model, shape: Shape, load: Load, memory: Mapping[str, float]) -> Table:
    mine = replace(shape, rows_per_file=load.rows_per_file)
    rows = []
    for cores in CORES:
        used = use_of(model, load.rows_per_second, cores, mine)
        first, share = breaks_first(used)
        bill = day_of(model, load.rows_per_second, cores, mine)
        batch = largest_batch(model, SILVER, cores, mine)
        driver = batch.files * memory["file"] + batch.rows * memory["row"]
        rows.append(
            [
                f"{cores:,}",
                first,
                _largest_part(model, first, cores, mine, load.rows_per_second),
                f"{share:,.1f}",
                f"{bill.core_hours:,.0f}",
                f"{bill.driver_hours:,.1f}",
                f"{bill.s3_requests / 1e6:,.1f}",
                f"{bill.catalog_requests:,.0f}",
                f"{driver / 2**30:,.1f}",
            ]
        )
    columns = [
        "cores",
        "breaks first",
        "of which the most",
        "needed over available",
        "core-hours a day",
        "driver-hours a day",
    ]
    return Table(
        load.name, [*columns, "millions of S3 requests a day", "catalog requests a day", "driver's Python, GiB"], rows
    )


def _horizon_table(model: Model, shape: Shape) -> Table:
    rows = []
    for name, hours in (("1 hour", 1), ("1 day", 24), ("7 days", 168)):
        mine = replace(shape, horizon=hours * _HOUR)
        found = [most_rows_per_second(model, cores, mine) for cores in CORES]
        rows.append([name, *(f"{each:,.0f}" for each in found)])
    columns = ["horizon of silver (strategy `merge`)", *(f"events/s with {cores:,} cores" for cores in CORES)]
    return Table("Keys that are remembered", columns, rows)


def _zone_table(measured: Samples, costs: Mapping[str, Fitted]) -> Table:
    units = {FILES: ZONE}
    listed = _of(measured["phases"], "phase", "list")
    state = _fitted([each for each in listed if "state_bytes" in each], (FILES,), "state_bytes").cost
    memory = _fitted(_of(measured["phases"], "phase", "memory of list"), (FILES,), "bytes").cost
    micro_batches = ZONE / LIMITS.files
    of_bucket = costs["list in a bucket"].cost
    rows = [
        ["first sweep, local", f"{costs['list'].cost.of(units) / 60:,.0f} min"],
        [
            "first sweep, bucket",
            f"{of_bucket.of(units) / 60:,.0f} min, {ZONE / _FILES_OF_A_LISTING:,.0f} LIST requests",
        ],
        ["each later sweep, local", f"{costs['list again'].cost.of(units) / 60:,.1f} min"],
        ["driver's memory in the first sweep, local", f"{memory.of(units) / 2**30:,.1f} GiB"],
        ["driver's memory in the first sweep, bucket", f"{memory.of({FILES: TAKEN_AT_ONCE}) / 2**30:,.1f} GiB"],
        ["state database", f"{state.of(units) / 2**30:,.1f} GiB"],
        ["micro-batches to take all", f"{micro_batches:,.0f}"],
        ["plan of each", f"{costs['plan'].cost.of({FILES: LIMITS.files}):,.2f} s"],
        ["ledger rows of each", f"{costs['ledger'].cost.of({FILES: LIMITS.files}):,.2f} s"],
    ]
    return Table(f"A landing zone of {ZONE:,} files", ["what", "predicted"], rows)


def _history_table(measured: Samples, costs: Mapping[str, Fitted]) -> Table:
    commit = costs["commit"].cost
    sized = [each for each in _of(measured["commits"], "phase", "commit") if "metadata_bytes" in each]
    metadata = _fitted(sized, (SNAPSHOTS,), "metadata_bytes").cost
    commits = DAYS * _DAY / EVERY_SECONDS
    rows = []
    for name, kept in (
        ("unmaintained", commits),
        (f"maintained, at most {KEPT_SNAPSHOTS:,} snapshots", KEPT_SNAPSHOTS),
    ):
        found = history_of(commit, commits, kept)
        size = metadata.of({SNAPSHOTS: found.snapshots}) / 2**20
        rows.append(
            [name, f"{found.snapshots:,.0f}", f"{size:,.1f}", f"{found.last_seconds:,.2f}", f"{found.hours:,.1f}"]
        )
    until = (EVERY_SECONDS / _COMMITS[BRONZE] - commit.fixed) / (commit.unit(SNAPSHOTS) or 1e-12)
    rows.append(
        [
            f"bronze's {_COMMITS[BRONZE]} commits take all of the {EVERY_SECONDS} s",
            f"{until:,.0f} (day {until * EVERY_SECONDS / _DAY:,.0f})",
            f"{metadata.of({SNAPSHOTS: until}) / 2**20:,.1f}",
            "",
            "",
        ]
    )
    taken = _of(measured["commits"], "phase", "commit, maintained")
    rows.append(["measured after maintenance", "1", "", f"{median(each['seconds'] for each in taken):.3f}", ""])
    (maintained,) = _of(measured["commits"], "phase", "maintain")
    rows.append([f"that maintenance, {maintained['wall']:.1f} s elapsed", f"{maintained[SNAPSHOTS]:,}", "", "", ""])
    columns = ["table", "snapshots", "metadata file, MiB", "last commit, s", "processor hours of all commits"]
    return Table(f"{DAYS} days of a commit each {EVERY_SECONDS} s", columns, rows)


def _commit_lines(costs: Mapping[str, Fitted]) -> Lines:
    at = [10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 777_600.0]
    commit = costs["commit"].cost
    values = [round(commit.of({DATA_FILES: 1, SNAPSHOTS: each}), 4) for each in at]
    return Lines("A commit to a table that is not maintained", "snapshots", "s", at, {"predicted": values}, log_x=True)


def _capacity_lines(model: Model, shape: Shape) -> Lines:
    at = [float(cores) for cores in (1, 2, 4, 10, 30, 100, 300, 1_000)]
    values = {
        name: [float(round(most_rows_per_second(each, int(cores), where))) for cores in at]
        for name, (each, where) in _variants(model, shape).items()
    }
    return Lines("What a pipeline takes at most, predicted", "cores", "events/s", at, values, log_x=True)


def _largest_part(model: Model, resource: str, cores: int, shape: Shape, rows_per_second: float) -> str:
    """Return the largest part of a layer's micro-batch, if a layer breaks first."""
    layer = resource.partition(",")[0]
    if layer not in model.layers:
        return ""
    batch = largest_batch(model, layer, cores, shape)
    parts = seconds_by_part(model, layer, batch, cores, shape, rows_per_second * shape.horizon)
    name, seconds = max(parts.items(), key=lambda each: each[1])
    return f"{name} ({seconds / sum(parts.values()):.0%})"


def _inflations(measured: Samples, layer: str) -> list[tuple[float, float]]:
    """Return pairs of cores and processor time of tasks, relative to one core, for each size."""
    by_size: dict[tuple[int, int], dict[int, list[float]]] = {}
    for each in _in_tasks(_of(measured["layers"], "layer", layer)):
        by_size.setdefault((each[FILES], each[ROWS]), {}).setdefault(each["cores"], []).append(each["workers"])
    return [
        (cores, median(took) / median(by_cores[1]))
        for by_cores in by_size.values()
        if 1 in by_cores
        for cores, took in sorted(by_cores.items())
    ]


def _whole(measured: Samples, layer: str) -> list[tuple[float, float]]:
    """Return these pairs for the whole of the largest micro-batch, where cores wait while the driver works."""
    mine = [each for each in _of(measured["layers"], "layer", layer) if each["held_out"]]
    elapsed = {
        cores: median(_driver(each) + each["workers"] / cores for each in mine if each["cores"] == cores)
        for cores in sorted({each["cores"] for each in mine})
    }
    return [(cores, cores * seconds / elapsed[1]) for cores, seconds in elapsed.items()]


def _by_cores(pairs: Iterable[tuple[float, float]]) -> Iterable[tuple[float, list[tuple[float, float]]]]:
    return ((cores, list(found)) for cores, found in groupby(sorted(pairs), key=lambda pair: pair[0]))


def _in_tasks(samples: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the samples with work done in tasks: the driver does small work itself."""
    found = list(samples)
    return [each for each in found if each["workers"] >= _ENOUGH] or found


def _driver(sample: Mapping[str, Any]) -> float:
    return float(sample["driver"] + sample["jvm"])


def _scheduling(sample: Mapping[str, Any]) -> float:
    """Return the driver's work for tasks, without the threads that run them: on a cluster, they are in another JVM."""
    return _driver(sample) - float(sample["executor"])


def _with(samples: Iterable[Mapping[str, Any]], seconds: Any) -> list[Mapping[str, Any]]:
    return [{**each, "seconds": seconds(each)} for each in samples]


def _of(samples: Iterable[Mapping[str, Any]], key: str, value: str) -> list[Any]:
    return [each for each in samples if each.get(key) == value]


def _is_largest(sample: Mapping[str, Any], largest: int) -> bool:
    return sample["phase"] in ("list", "list again", "plan", "ledger") and sample[FILES] == largest


def _singular(unit: str) -> str:
    return {REMEMBERED: "remembered row"}.get(unit, unit.replace("_", " ").removesuffix("s"))
