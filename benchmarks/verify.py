"""``reader verify``, compared with DuckDB converting the same files to Parquet."""

from tempfile import TemporaryDirectory

from benchmarks.compare import DUCKDB
from benchmarks.harness import (
    WORK,
    Bars,
    Goal,
    Options,
    Report,
    Side,
    Table,
    machine,
    measure,
    medians,
    module,
    run_side,
)
from benchmarks.inputs import Input, land

VERIFY = "reader verify events"
_AT_MOST = 3.0

ABOUT = [
    "The consumer takes a backlog of files with 5 % bad records, none of them cut short; then `reader verify` recounts "
    "it, and DuckDB copies the same files to Parquet. Verify's time is that of its whole process, DuckDB's that of the "
    "COPY alone."
]


def run(options: Options) -> Report:
    """Fill a lake, then run both sides."""
    about_machine = machine()
    landed = land(Input(options.files, invalid=0.05))
    landed.warm_up()
    WORK.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="verify-", dir=WORK) as home:
        environment = {"LAKE_HOME": home, "LAKE_LANDING": str(landed.root)}
        run_side(Side("consumer", module("consumer", "run", "events", "--available-now"), environment))
        sides = [
            Side(VERIFY, module("reader", "verify", "events"), environment),
            Side(DUCKDB, module("benchmarks.sides.duckdb_parquet", landed.sound_files)),
        ]
        samples = measure(sides, options.repeat)
    found = medians(samples)
    rows = [
        [name, f"{sample.seconds:.2f}", f"{sample.process_seconds:.2f}", f"{sample.peak_rss_mib:,.0f}"]
        for name, sample in found.items()
    ]
    return Report(
        name="verify",
        title="Verify",
        about=ABOUT,
        goals=[Goal(f"`{VERIFY}` over {DUCKDB}", found[VERIFY].seconds / found[DUCKDB].seconds, at_most=_AT_MOST)],
        tables=[Table("Times", ["side", "seconds", "whole process, s", "peak MiB"], rows)],
        machine=about_machine,
        options={"files": options.files, "runs_of_each_side": options.repeat},
        bars=[
            Bars(
                f"{options.files:,} files of 1,000 records",
                "seconds",
                list(found),
                {"seconds": [round(sample.seconds, 2) for sample in found.values()]},
            )
        ],
        raw=[sample.as_dict() for sample in samples],
    )
