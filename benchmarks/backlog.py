"""A backlog of files on a local disk: lakeproof, the usual consumer, dlt, and DuckDB alone."""

from benchmarks.compare import DLT, DUCKDB, OURS, PERSISTED, USUAL, Comparison, Truth, bars
from benchmarks.harness import Options, Report, Side, machine, measure, medians, module
from benchmarks.inputs import Input, Landed, land

ABOUT = [
    "A backlog of files of 1,000 records each, with nothing landing meanwhile; all of it is in the page cache. "
    "*Seconds* is from the start of the stream to its last commit, without the start of Python and the JVM, which "
    "*whole process* has. In the inputs with 5 % bad records, 10 % of the files are cut short as well. Rows are "
    "counted with DuckDB after the clock has stopped, and set against what the producer says that it made. Figures "
    "are medians; lakeproof and DuckDB, which take seconds, run three times as often as the others.",
    f"- **{OURS}**: `consumer run events --available-now`. Its time includes finding the files, and the ledger. Its "
    "tables are made while the session starts. (Until November 2026, this side made them in the measured time.)\n"
    f"- **{USUAL}** (`benchmarks/sides/usual.py`): Spark's JSON functions, two counts and two appends in foreachBatch; "
    "same session, JVM, catalog and partitions. Its tables exist before. It takes what Spark's parser "
    "lets through (numbers for strings, for one), and after a crash it can append twice.\n"
    f"- **{PERSISTED}**: the same, with `.persist()` before the two counts and the two appends, as a good engineer "
    "would write it.\n"
    f"- **{DLT}** (`benchmarks/sides/dlt_iceberg.py`): a pydantic model judges each record, Arrow tables are written. "
    "It is not partitioned, and keeps a dead letter as it was parsed instead of as it landed.\n"
    f"- **{DUCKDB}** (`benchmarks/sides/duckdb_parquet.py`): reads and writes, judges nothing, keeps no dead letters. "
    "Files that were cut short are left out for it, since it stops at the first one.",
]


def run(options: Options) -> Report:
    """Run all sides over compact and spaced input, with 0, 5 and 50 % bad records."""
    about_machine = machine()
    comparisons, raw = [], {}
    for style in ("compact", "spaced"):
        for invalid, corrupt in ((0.0, 0.0), (0.05, 0.1), (0.5, 0.0)):
            backlog = Input(options.files, style=style, invalid=invalid, corrupt=corrupt)
            landed = land(backlog)
            landed.warm_up()
            samples = measure(_sides(landed), options.repeat)
            comparisons.append(Comparison(backlog.name, truth(landed), medians(samples)))
            raw[backlog.name] = [sample.as_dict() for sample in samples]
    return Report(
        name="backlog",
        title="Backlog on a local disk",
        about=ABOUT,
        goals=[goal for comparison in comparisons for goal in comparison.goals()],
        tables=[comparison.table() for comparison in comparisons],
        machine=about_machine,
        options={"files": options.files, "runs_of_each_side": options.repeat},
        bars=[bars(f"{options.files:,} files of 1,000 records", comparisons)],
        raw=raw,
    )


def truth(landed: Landed) -> Truth:
    """Return the expected number of bronze rows and dead letters of a backlog, from the producer's report."""
    expected = landed.truth["expected"]
    return Truth(expected["bronze"], sum(expected["dead_letters"].values()))


def _sides(landed: Landed) -> list[Side]:
    environment = {"LAKE_LANDING": str(landed.root)}
    # A second of noise is a third of their time, so they run between the others.
    short = [
        Side(OURS, module("benchmarks.sides.ours"), environment),
        Side(DUCKDB, module("benchmarks.sides.duckdb_parquet", landed.sound_files), environment),
    ]
    long = [
        Side(PERSISTED, module("benchmarks.sides.usual", "--persisted"), environment),
        Side(USUAL, module("benchmarks.sides.usual"), environment),
        Side(DLT, module("benchmarks.sides.dlt_iceberg"), environment),
    ]
    return [side for each in long for side in (*short, each)]
