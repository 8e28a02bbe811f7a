"""Bronze to silver and gold: lakeproof, MERGE in foreachBatch, and Spark's own stateful operators."""

from benchmarks.harness import Goal, Options, Report, Sample, Side, Table, machine, measure, medians, module
from benchmarks.inputs import Input, land

MERGE, STATE = "lakeproof, merge", "lakeproof, state"
USUAL, STATEFUL = "MERGE in foreachBatch, persisted", "dropDuplicatesWithinWatermark and groupBy"
_DUPLICATES = 0.05

ABOUT = [
    "1,000 files of 1,000 records of one day, 5 % of them duplicates, lie in bronze; lakeproof's consumer has put them "
    "there in micro-batches of 100 files. *Seconds* is from there to the last commit of silver and gold, without the "
    "start of the JVM. Each side takes bronze in about ten micro-batches.",
    f"- **{MERGE}**, **{STATE}**: `consumer run events --available-now` with the two strategies of silver. Every row "
    "has a verdict, and every commit is fenced.\n"
    f"- **{USUAL}** (`benchmarks/sides/merged.py`): `dropDuplicates`, then `MERGE INTO` silver within the horizon; the "
    "windows that a micro-batch touches are computed again, and merged into gold. Duplicates are dropped without a "
    "word, and so is what differs from the row that was kept.\n"
    f"- **{STATEFUL}** (`benchmarks/sides/stateful.py`): one streaming query with RocksDB, from bronze to gold; there "
    "is no silver, products are counted approximately, and what is dropped is not counted.",
]


def run(options: Options) -> Report:
    """Run all sides over the same bronze."""
    about_machine = machine()
    landed = land(Input(options.files, duplicates=_DUPLICATES, days=False))
    environment = {
        "LAKE_LANDING": str(landed.root),
        "LAKE_MAX_FILES_PER_MICRO_BATCH": str(max(options.files // 10, 1)),
        "LAKE_MAX_ROWS_PER_SILVER_MICRO_BATCH": str(options.files * 100),
    }
    sides = [
        Side(MERGE, module("benchmarks.sides.layers", "merge"), environment),
        Side(STATE, module("benchmarks.sides.layers", "state"), environment),
        Side(USUAL, module("benchmarks.sides.merged"), environment),
        Side(STATEFUL, module("benchmarks.sides.stateful"), environment),
    ]
    samples = measure(sides, options.repeat)
    found = medians(samples)
    rows = found[MERGE].figures["bronze"]
    return Report(
        name="medallion",
        title="Bronze to silver and gold",
        about=ABOUT,
        goals=[
            Goal(f"{USUAL} over the better of lakeproof's", found[USUAL].seconds / _best(found), at_least=3),
            Goal(f"{STATEFUL} over the better of lakeproof's", found[STATEFUL].seconds / _best(found), at_least=1),
        ],
        tables=[
            Table(
                f"{rows:,} rows of bronze",
                ["side", "seconds", "rows/s", "peak MiB", "silver rows", "gold rows", "state, MB"],
                [_row(name, sample, rows) for name, sample in found.items()],
            )
        ],
        machine=about_machine,
        options={"files": options.files, "runs_of_each_side": options.repeat},
        raw=[sample.as_dict() for sample in samples],
    )


def _best(found: dict[str, Sample]) -> float:
    return min(found[MERGE].seconds, found[STATE].seconds)


def _row(name: str, sample: Sample, rows: int) -> list[str]:
    figures = sample.figures
    return [
        name,
        f"{sample.seconds:.1f}",
        f"{rows / sample.seconds:,.0f}",
        f"{sample.peak_rss_mib:,.0f}",
        f"{figures['silver']:,}" if figures["silver"] else "",
        f"{figures['gold']:,}",
        f"{figures['state_bytes'] / 1e6:,.0f}" if figures["state_bytes"] else "",
    ]
