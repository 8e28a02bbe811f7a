"""``lakeproof contract try`` on all landed files, compared with the consumer that landed their records."""

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
REPLAY = "consumer replay --dry-run"
_BAD = 0.05
_RECORDS = 1_000
_AT_MOST_SECONDS = 10.0
_AT_MOST = 1.0

ABOUT = [
    "The consumer takes a backlog of files of 1,000 events, 5 % of them bad. Then a contract that allows one more type "
    "of event is tried on all that has landed, and on the usual sample; and `consumer replay --dry-run` judges the "
    "dead letters under it. *A unit* is the time of the whole process, its start included, by the units that it judged."
]


def run(options: Options) -> Report:
    """Fill a lake, then try a contract on it."""
    about_machine = machine()
    landed = land(Input(options.files, _RECORDS, invalid=_BAD))
    landed.warm_up()
    records = options.files * _RECORDS
    WORK.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="what-if-", dir=WORK) as home:
        new = _new_contract(Path(home))
        backlog = {"LAKE_LANDING": str(landed.root)}
        filled = backlog | {"LAKE_HOME": f"{home}/lake"}
        consume = module("consumer", "run", "events", "--available-now")
        run_side(Side(BACKLOG, consume, filled))
        command = module("lakeproof", "contract", "try", "events", "--with", new)
        again = (*module("consumer", "replay", "events"), "--dry-run")
        sides = [
            Side(BACKLOG, consume, backlog),
            Side(TRY, (*command, "--all"), filled),
            Side(SAMPLE, command, filled),
            Side(REPLAY, again, filled | {"LAKE_CONTRACTS": str(new.parent)}),
        ]
        found = medians(samples := measure(sides, options.repeat))
    units = {BACKLOG: records, TRY: records, REPLAY: round(records * _BAD)}
    rows = [
        [
            name,
            f"{sample.process_seconds:.2f}",
            f"{sample.process_seconds / units[name] * 1e6:.1f}" if name in units else "",
            f"{sample.peak_rss_mib:,.0f}",
        ]
        for name, sample in found.items()
    ]
    seconds = {name: sample.process_seconds for name, sample in found.items()}
    return Report(
        name="what-if",
        title="What-if",
        about=ABOUT,
        goals=[
            Goal(f"`{TRY}`, {records:,} records", seconds[TRY], at_most=_AT_MOST_SECONDS, unit="s"),
            Goal(f"`{TRY}` over the backlog", seconds[TRY] / seconds[BACKLOG], at_most=_AT_MOST),
        ],
        tables=[Table("Times", ["side", "whole process, s", "a unit, µs", "peak MiB"], rows)],
        machine=about_machine,
        options={"files": options.files, "runs_of_each_side": options.repeat},
        bars=[
            Bars(
                f"{records:,} records",
                "seconds",
                list(found),
                {"seconds": [round(each, 2) for each in seconds.values()]},
            )
        ],
        raw=[sample.as_dict() for sample in samples],
    )


def _new_contract(folder: Path) -> Path:
    """Write the stream's contract with one more allowed value."""
    text = (ROOT / "contracts" / "events.yaml").read_text()
    value = "          - value: page_view\n"
    path = folder / "contracts" / "events.yaml"
    path.parent.mkdir()
    path.write_text(text.replace(value, f"{value}          - value: search\n").replace("version: 1.", "version: 9."))
    return path
