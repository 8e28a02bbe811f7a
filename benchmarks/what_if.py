"""``lakeproof contract try`` over all that has landed, beside the consumer that landed it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import (
    ROOT,
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

TRY = "lakeproof contract try --all"
SAMPLE = "lakeproof contract try"
BACKLOG = "consumer run --available-now"
_RECORDS = 1_000
_AT_MOST_SECONDS = 10.0
_AT_MOST = 1.0

ABOUT = [
    "The consumer takes a backlog of files of 1,000 events, 5 % of them bad. Then a contract that allows one more type "
    "of event is tried on all that has landed, and on the usual sample. Times are those of whole processes; the start "
    "is that of `--sample 1`."
]


def run(options: Options) -> Report:
    """Fill a lake, then try a contract on it."""
    about_machine = machine()
    landed = land(Input(options.files, _RECORDS, invalid=0.05))
    landed.warm_up()
    records = options.files * _RECORDS
    WORK.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="what-if-", dir=WORK) as home:
        environment = {"LAKE_HOME": f"{home}/lake", "LAKE_LANDING": str(landed.root)}
        new = f"{home}/new.yaml"
        text = (ROOT / "contracts" / "events.yaml").read_text()
        more = "          - value: page_view\n          - value: search\n"
        Path(new).write_text(text.replace("          - value: page_view\n", more).replace("version: 1.", "version: 9."))
        consume = module("consumer", "run", "events", "--available-now")
        run_side(Side(BACKLOG, consume, environment))
        command = module("lakeproof", "contract", "try", "events", "--with", new)
        sides = [
            Side(BACKLOG, consume, {"LAKE_LANDING": str(landed.root)}),
            Side(TRY, (*command, "--all"), environment),
            Side(SAMPLE, command, environment),
            Side("start", (*command, "--sample", "1"), environment),
        ]
        samples = measure(sides, options.repeat)
    found = medians(samples)
    start = found["start"].process_seconds
    trying = found[TRY].process_seconds
    rows = [
        [
            name,
            f"{sample.process_seconds:.2f}",
            f"{sample.process_seconds / records * 1e6:.2f}",
            f"{sample.peak_rss_mib:,.0f}",
        ]
        for name, sample in found.items()
        if name in (BACKLOG, TRY)
    ]
    rows += [
        [f"{TRY}, without the start", f"{trying - start:.2f}", f"{(trying - start) / records * 1e6:.2f}", ""],
        [
            f"{SAMPLE}, 100,000 of each table",
            f"{found[SAMPLE].process_seconds:.2f}",
            "",
            f"{found[SAMPLE].peak_rss_mib:,.0f}",
        ],
    ]
    shown = [name for name in found if name != "start"]
    return Report(
        name="what-if",
        title="What-if",
        about=ABOUT,
        goals=[
            Goal(f"`{TRY}`, {records:,} records", trying, at_most=_AT_MOST_SECONDS, unit="s"),
            Goal(f"`{TRY}` over the backlog", trying / found[BACKLOG].process_seconds, at_most=_AT_MOST),
        ],
        tables=[Table("Times", ["side", "whole process, s", "µs a record", "peak MiB"], rows)],
        machine=about_machine,
        options={"files": options.files, "runs_of_each_side": options.repeat},
        bars=[
            Bars(
                f"{records:,} records",
                "seconds",
                shown,
                {"seconds": [round(found[name].process_seconds, 2) for name in shown]},
            )
        ],
        raw=[sample.as_dict() for sample in samples],
    )
