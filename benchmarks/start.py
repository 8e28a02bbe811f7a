"""Time of a start with nothing to do."""

from tempfile import TemporaryDirectory

from benchmarks.harness import WORK, Goal, Options, Report, Side, Table, machine, measure, medians, module, run_side
from benchmarks.inputs import Input, land

CONSUMER, READER = "consumer run events --available-now", 'reader sql "select 1"'
_GOALS = {CONSUMER: 10.0, READER: 1.5}

ABOUT = [
    "Whole processes, from their start to their end, on a local lake that has taken everything already. Each was run "
    "once before, so that what it reads is in the page cache."
]


def run(options: Options) -> Report:
    """Fill a lake, run both once, then run both, timed."""
    about_machine = machine()
    landed = land(Input(10, 100))
    WORK.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="start-", dir=WORK) as home:
        environment = {"LAKE_HOME": home, "LAKE_LANDING": str(landed.root)}
        sides = [
            Side(CONSUMER, module("consumer", "run", "events", "--available-now"), environment),
            Side(READER, module("reader", "sql", "select 1"), environment),
        ]
        for side in [sides[0], *sides]:
            run_side(side)
        samples = measure(sides, options.repeat)
    found = medians(samples)
    rows = [[name, f"{sample.process_seconds:.2f}", f"{sample.peak_rss_mib:,.0f}"] for name, sample in found.items()]
    return Report(
        name="start",
        title="Start",
        about=ABOUT,
        goals=[
            Goal(f"`{name}`", found[name].process_seconds, at_most=limit, unit="s") for name, limit in _GOALS.items()
        ],
        tables=[Table("Starts", ["command", "seconds", "peak MiB"], rows)],
        machine=about_machine,
        options={"runs_of_each_side": options.repeat},
        raw=[sample.as_dict() for sample in samples],
    )
