"""The judges, compared with programs that only read the same files: processor time of one process."""

from benchmarks.harness import Bars, Goal, Options, Report, Side, Table, machine, measure, medians, module
from benchmarks.inputs import Input, land

SIDES = {
    "native judge": "native",
    "Python judge": "python",
    "json.loads": "json",
    "msgspec, untyped": "msgspec",
    "DuckDB's read_json": "duckdb",
}
NATIVE = "native judge"
_SHARES = {0.05: 0.6, 0.5: 1.2}
_RECORDS = 1_000
_FILES = 5  # divisor of the number of files of a backlog

ABOUT = [
    "Files of 1,000 events, 10 % of them cut short, in memory. *Microseconds* are processor time for each record that "
    "was made, without the start of a side, and without reading the files.",
    "- **native judge**, **Python judge**: every record has its verdict. The result is Arrow columns of the good "
    "records, and for the others their bytes and all reasons.\n"
    "- **json.loads**, **msgspec, untyped**: Python objects. Nothing is judged, and nothing of a file that is cut "
    "short is read.\n"
    "- **DuckDB's read_json**: one thread, with columns and timestamps. It reads the files itself, without those that "
    "are cut short.",
]


def run(options: Options) -> Report:
    """Run all sides for each share of bad records."""
    about_machine = machine()
    count = max(options.files // _FILES, 10)
    goals, rows, raw = [], [], []
    values: dict[str, list[float]] = {name: [] for name in SIDES}
    for share, limit in _SHARES.items():
        landed = land(Input(count, _RECORDS, invalid=share, corrupt=0.1))
        landed.warm_up()
        sides = [Side(name, module("benchmarks.sides.readers", key, landed.folder)) for name, key in SIDES.items()]
        samples = measure(sides, options.repeat)
        found = {name: sample.seconds / (count * _RECORDS) * 1e6 for name, sample in medians(samples).items()}
        raw += [sample.as_dict() for sample in samples]
        goals.append(Goal(f"{NATIVE}, {share:.0%} bad, a record", found[NATIVE], at_most=limit, unit="µs"))
        goals.append(Goal(f"{NATIVE} over json.loads, {share:.0%} bad", found[NATIVE] / found["json.loads"], at_most=1))
        rows += [[f"{share:.0%} bad", name, f"{each:.2f}"] for name, each in found.items()]
        for name, each in found.items():
            values[name].append(round(each, 2))
    return Report(
        name="judge",
        title="The judges",
        about=ABOUT,
        goals=goals,
        tables=[Table("Processor time of a record", ["records", "side", "µs"], rows)],
        machine=about_machine,
        options={"files": count, "runs_of_each_side": options.repeat},
        bars=[Bars("Processor time of a record", "µs", [f"{share:.0%} bad" for share in _SHARES], values)],
        raw=raw,
    )
