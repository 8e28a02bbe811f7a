"""Hashes of the rows of bronze: processor time of one process."""

from benchmarks.harness import Bars, Goal, Options, Report, Side, Table, machine, measure, medians, module
from benchmarks.inputs import Input, land

SIDES = {
    "native, of rows": "rows-native",
    "Python, of rows": "rows-python",
    "DuckDB, of rows": "rows-duckdb",
    "native, of content": "contents-native",
    "Python, of content": "contents-python",
}
NATIVE = "native, of rows"
_RECORDS = 1_000
_FILES = 5  # divisor of the number of files of a backlog

ABOUT = [
    "Rows of `bronze.events` in memory, a batch for each file of 1,000 records. *Microseconds* are processor time for "
    "each row, without the start of a side.",
    "- **native**, **Python**: a hash for each row, by the native judge's package or without it; *of rows* as the "
    "ledger has them (MD5 of all columns), *of content* as silver has them (BLAKE2b of the contract's fields).\n"
    "- **DuckDB**: the sum of the hashes of all rows, in one thread, as `reader verify` computes it.",
]


def run(options: Options) -> Report:
    """Hash the same rows with all sides."""
    about_machine = machine()
    landed = land(Input(max(options.files // _FILES, 10), _RECORDS))
    landed.warm_up()
    sides = [Side(name, module("benchmarks.sides.hashing", key, landed.folder)) for name, key in SIDES.items()]
    samples = measure(sides, options.repeat)
    found = {name: each.seconds / each.figures["units"] * 1e6 for name, each in medians(samples).items()}
    return Report(
        name="hashes",
        title="Hashes of rows",
        about=ABOUT,
        goals=[Goal(f"{NATIVE}, a row", found[NATIVE], at_most=0.6, unit="µs")],
        tables=[Table("Processor time of a row", ["side", "µs"], [[name, f"{x:.2f}"] for name, x in found.items()])],
        machine=about_machine,
        options={"files": options.files // _FILES, "runs_of_each_side": options.repeat},
        bars=[Bars("Processor time of a row", "µs", [""], {name: [round(x, 2)] for name, x in found.items()})],
        raw=[sample.as_dict() for sample in samples],
    )
