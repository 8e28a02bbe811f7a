"""Memory of the consumer with a heap of 2 GB: many files, ten times as many files, and one large file."""

from benchmarks.harness import Bars, Goal, Options, Report, Sample, Side, Table, machine, measure, medians, module
from benchmarks.inputs import Input, Landed, land, land_copies, land_one_large

_HEAP = "2g"
_TIMES = 10
# Two equal runs differ by this much.
_NO_MORE = 1.1

ABOUT = [
    f"The consumer with `LAKE_DRIVER_MEMORY={_HEAP}`, which is the JVM's heap, over backlogs of compact files on a "
    "local disk. Peaks of resident memory, looked at ten times a second: of the whole tree of processes at one moment, "
    "and of its parts, each at its own. What processes share is counted in each of them, so the sum is an upper bound. "
    f"The backlog of {_TIMES} times the files has each file {_TIMES} times, under other names.",
]


def run(options: Options) -> Report:
    """Run the consumer over each backlog."""
    about_machine = machine()
    many = Input(options.files)
    backlogs = {
        f"{options.files:,} files": land(many),
        f"{options.files * _TIMES:,} files": land_copies(many, _TIMES),
        "one file of 200 MB": land_one_large(),
    }
    samples = measure([_side(name, landed) for name, landed in backlogs.items()], options.repeat)
    found = medians(samples)
    few, more, _ = found.values()
    return Report(
        name="memory",
        title="Memory",
        about=ABOUT,
        goals=[
            Goal(
                f"peak with {more.side}, over that with {few.side}",
                more.peak_rss_mib / few.peak_rss_mib,
                at_most=_NO_MORE,
            )
        ],
        tables=[_table(backlogs, found)],
        machine=about_machine,
        options={"files": options.files, "runs_of_each_side": options.repeat, "driver_memory": _HEAP},
        bars=[
            Bars(
                "Peak of resident memory",
                "MiB",
                list(found),
                {
                    "all": [round(sample.peak.total) for sample in found.values()],
                    "JVM": [round(sample.peak.jvm) for sample in found.values()],
                    "Python workers": [round(sample.peak.workers) for sample in found.values()],
                },
            )
        ],
        raw=[sample.as_dict() for sample in samples],
    )


def _side(name: str, landed: Landed) -> Side:
    environment = {"LAKE_LANDING": str(landed.root), "LAKE_DRIVER_MEMORY": _HEAP}
    return Side(name, module("benchmarks.sides.ours"), environment)


def _table(backlogs: dict[str, Landed], found: dict[str, Sample]) -> Table:
    rows = [
        [
            name,
            f"{backlogs[name].bytes() / 1e6:,.0f}",
            f"{sample.peak.total:,.0f}",
            f"{sample.peak.jvm:,.0f}",
            f"{sample.peak.workers:,.0f}",
            f"{sample.peak.driver:,.0f}",
            f"{sample.seconds:.1f}",
            f"{sample.figures['bronze']:,}",
        ]
        for name, sample in found.items()
    ]
    columns = ["backlog", "MB", "peak MiB", "JVM", "Python workers", "Python driver", "seconds", "bronze rows"]
    return Table("Peaks", columns, rows)
