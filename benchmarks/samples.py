"""Samples of windows: lakeproof, and a list of each window's readings in Spark's state."""

from benchmarks.harness import Goal, Lines, Options, Report, Sample, Side, Table, machine, measure, medians, module
from benchmarks.sides.readings import WARM_UP, Load

OURS, USUAL = "lakeproof", "applyInPandasWithState"
_SECONDS_PER_MINUTE = 5
_FULL = 5

ABOUT = [
    "10,000 devices measure every 10 s. Silver gets a commit for each minute of event time, 60,000 readings that come "
    "up to 25 s late, and each side takes it before the next one is made. *Seconds* is what a side takes for all of "
    f"them, without the first {WARM_UP} and the start of the JVM. Windows of 60 s every 30 s, samples of all devices "
    "of a window together (`by: window`); both write them to an Iceberg table.",
    f"- **{OURS}**: the query of the samples, as `consumer run sensors` runs it. It fills the table of anomalies, "
    "too.\n"
    f"- **{USUAL}** (`benchmarks/sides/samples_usual.py`): a watermark of 30 s, each reading in its two windows, and "
    "the readings of a window in a list in Spark's state (RocksDB, changelog checkpoints, 2 partitions). It makes no "
    "table of anomalies.",
    "*State* of Spark is what it reports to have in memory, and the files of state in the checkpoint: Spark keeps "
    f"those of 100 micro-batches. {OURS} has no state. What it will read again are the files of silver with a "
    "reading of a window that is not published yet; silver has them anyway.",
]


def run(options: Options) -> Report:
    """Run both sides over the same readings."""
    about_machine = machine()
    load = Load(devices=10_000, every=10, step=60, minutes=max(options.seconds // _SECONDS_PER_MINUTE, 2 * _FULL))
    size = (load.devices, load.every, load.step, load.minutes)
    sides = [
        Side(OURS, module("benchmarks.sides.samples_ours", "window", *size)),
        Side(USUAL, module("benchmarks.sides.samples_usual", *size)),
    ]
    samples = measure(sides, options.repeat)
    found = medians(samples)
    ours, usual = found[OURS], found[USUAL]
    return Report(
        name="samples",
        title="Samples of windows",
        about=ABOUT,
        goals=[
            Goal(f"{USUAL} over {OURS}", usual.seconds / ours.seconds, at_least=1),
            Goal("different samples", int(_samples(ours) != _samples(usual)), at_most=0, unit=""),
            Goal(f"{OURS}, to be read again: greatest over that of minute {_FULL}", growth(ours), at_most=1.1),
        ],
        tables=[
            Table(
                f"{ours.figures['readings']:,.0f} readings, {load.minutes} minutes of event time",
                ["side", "seconds", "readings/s", "peak MiB", "samples"],
                [_row(name, sample) for name, sample in found.items()],
            ),
            Table(
                "What is kept of open windows, MB",
                ["side", f"minute {_FULL}", f"minute {load.minutes}", "greatest"],
                [
                    _kept(f"{OURS}, files of silver to read again", ours, "disk"),
                    _kept(f"{USUAL}, state in memory", usual, "memory"),
                    _kept(f"{USUAL}, state on disk", usual, "disk"),
                ],
            ),
        ],
        machine=about_machine,
        options={"minutes_of_event_time": load.minutes, "runs_of_each_side": options.repeat},
        lines=[
            Lines(
                "What is kept of open windows",
                "minute of event time",
                "MB",
                [float(minute) for minute in range(1, load.minutes + 1)],
                {
                    f"{OURS}, to be read again": _state(ours, "disk"),
                    f"{USUAL}, in memory": _state(usual, "memory"),
                    f"{USUAL}, on disk": _state(usual, "disk"),
                },
            )
        ],
        raw=[sample.as_dict() for sample in samples],
    )


def _samples(sample: Sample) -> tuple[int, str]:
    return int(sample.figures["samples"]), sample.figures["digest"]


def _state(sample: Sample, where: str) -> list[float]:
    """Return megabytes after each minute."""
    return [each[where] / 1e6 for each in sample.figures["state"]]


def growth(sample: Sample) -> float:
    """Return the maximum bytes that lakeproof reads again, relative to the minute when all windows were first full."""
    sizes = _state(sample, "disk")[_FULL - 1 :]
    return max(sizes) / sizes[0]


def _kept(name: str, sample: Sample, where: str) -> list[str]:
    sizes = _state(sample, where)
    return [name, *(f"{size:.1f}" for size in (sizes[_FULL - 1], sizes[-1], max(sizes)))]


def _row(name: str, sample: Sample) -> list[str]:
    figures = sample.figures
    return [
        name,
        f"{sample.seconds:.1f}",
        f"{figures['readings'] / sample.seconds:,.0f}",
        f"{sample.peak_rss_mib:,.0f}",
        f"{figures['samples']:,.0f}",
    ]
