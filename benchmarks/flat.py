"""Cost of triggers and commits as the lake grows, and cost of a lost landing log."""

from collections.abc import Mapping
from typing import Any

from benchmarks.flat_triggers import FILES_OF_AN_HOUR, HOURLY, ONE_FOLDER, SHORT_SWEEP_SECONDS
from benchmarks.harness import Goal, Lines, Options, Report, Side, Table, machine, module, run_side
from benchmarks.minio import Minio, run_minio

_AT_MOST = 1.5
_BUCKET = "bench"
_FEW_SNAPSHOTS = 10
_MINIO, _LOCAL, _FOLDER = "MinIO", "local", "local, one folder"
# A file with an old name waits for the next sweep, for a sweep that may be running, and for the trigger after it.
_TRIGGER_SECONDS = 1.0

ABOUT = [
    "*Triggers*: `MicroBatches.next`, which is all that a trigger asks of the landing zone, while one file lands "
    "before each, at 1, 10 and 100 times the files; all of them in the landing log. Hourly folders hold "
    f"{FILES_OF_AN_HOUR:,} files each, and the new ones go to the last of them; *one folder* has all files in one, "
    "which a local trigger must list whole. It does not wait for files to settle here "
    "(`LAKE_SETTLE_SECONDS=0`). A *first* trigger is that of a consumer that starts. *Beside a sweep*: while another "
    "thread lists everything.",
    "*Old name*: a file that sorts before all others lands, with a modification time of 2020 where files have one; "
    f"`LAKE_SWEEP_SECONDS={SHORT_SWEEP_SECONDS:g}`. The delay promised is that, a sweep's time and a trigger's.",
    "*Commits*: `append_once` of one data file to `bronze.events` on a table with so many snapshots, none expired, "
    "each with its marker; medians of 30 after 30 on another table. *Lost landing log*: `place_to_go_on` makes it "
    "anew from a ledger of so many sources, once; no micro-batch asks the ledger after it. Medians of 5. *Look up*: "
    "1,000 names, half of them new, as a trigger on S3 does; before and after old names were shortened to hashes. "
    "*Bytes* are those of the state database for each file. Each size in a process of its own.",
]


def run(options: Options) -> Report:
    """Run the benchmark once; sizes are multiples of the number of files in the options."""
    about_machine = machine()
    sizes = [options.files, options.files * 10, options.files * 100]
    snapshots = [_FEW_SNAPSHOTS, options.files * 5]
    sources = [options.files, options.files * 1_000]
    with run_minio() as minio:
        minio.make_bucket(_BUCKET)
        triggers = {
            _LOCAL: _triggers({"LAKE_SETTLE_SECONDS": "0"}, HOURLY, sizes),
            _FOLDER: _triggers({"LAKE_SETTLE_SECONDS": "0"}, ONE_FOLDER, sizes),
            _MINIO: _triggers(_in_minio(minio), HOURLY, sizes),
        }
        commits = {
            _LOCAL: _by_size("flat_commits", snapshots, {}),
            _MINIO: _by_size("flat_commits", snapshots, _in_minio(minio)),
        }
    ledger = _by_size("flat_ledger", sources, {})
    return Report(
        name="flat",
        title="Flat as the lake grows",
        about=ABOUT,
        goals=[
            *(goal for place in (_LOCAL, _MINIO) for goal in trigger_goals(place, triggers[place])),
            *(
                Goal(f"commit, {place}: {_over(snapshots)} snapshots", ratio(found, "p50_s"), at_most=_AT_MOST)
                for place, found in commits.items()
            ),
        ],
        tables=[
            _table("Triggers", "files", triggers),
            _table("Commits", "snapshots", commits),
            _table("Lost landing log", "sources", {_LOCAL: ledger}),
        ],
        machine=about_machine,
        options={"files": sizes, "snapshots": snapshots, "sources": sources},
        lines=[
            Lines(
                "A trigger with one new file, p50",
                "files landed",
                "ms",
                [float(size) for size in sizes],
                {place: [round(one["p50_s"] * 1000, 2) for one in found.values()] for place, found in triggers.items()},
                log_x=True,
            )
        ],
        raw={"triggers": triggers, "commits": commits, "ledger": ledger},
    )


def trigger_goals(place: str, found: Mapping[str, Mapping[str, float]]) -> list[Goal]:
    """Compare the largest landing zone with the smallest, and the old file's delay with the promised one."""
    over = _over([int(size) for size in found])
    largest = list(found.values())[-1]
    promised = SHORT_SWEEP_SECONDS + largest["sweep_s"] + _TRIGGER_SECONDS
    return [
        Goal(f"trigger, {place}, p50: {over} files", ratio(found, "p50_s"), at_most=_AT_MOST),
        Goal(f"trigger, {place}, p99: {over} files", ratio(found, "p99_s"), at_most=_AT_MOST),
        Goal(f"file with an old name, {place}", largest["old_name_s"], at_most=round(promised, 1), unit="s"),
    ]


def ratio(found: Mapping[str, Mapping[str, float]], name: str) -> float:
    """Return the ratio of a figure at the last size to the first size."""
    figures = [one[name] for one in found.values()]
    return figures[-1] / figures[0]


def _triggers(environment: dict[str, str], layout: str, sizes: list[int]) -> dict[str, dict[str, Any]]:
    side = Side(f"triggers {layout}", module("benchmarks.flat_triggers", layout, *sizes), environment)
    found: dict[str, dict[str, Any]] = run_side(side).figures["sizes"]
    return found


def _by_size(name: str, sizes: list[int], environment: dict[str, str]) -> dict[str, dict[str, Any]]:
    sides = {str(size): Side(f"{name} {size}", module(f"benchmarks.{name}", size), environment) for size in sizes}
    return {size: run_side(side).figures for size, side in sides.items()}


def _in_minio(minio: Minio) -> dict[str, str]:
    return minio.environment() | {
        "LAKE_LANDING": f"s3://{_BUCKET}/{{run}}/landing",
        "LAKE_WAREHOUSE": f"s3://{_BUCKET}/{{run}}/warehouse",
    }


def _over(sizes: list[int]) -> str:
    return f"{sizes[-1]:,} over {sizes[0]:,}"


def _table(title: str, what: str, found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    names = list(next(iter(next(iter(found.values())).values())))
    rows = [
        [f"{place}, {int(size):,}", *(_cell(name, figures[name]) for name in names)]
        for place, by_size in found.items()
        for size, figures in by_size.items()
    ]
    columns = [name.removesuffix("_s").replace("_", " ") + (", s" if name.endswith("_s") else "") for name in names]
    return Table(title, [what, *columns], rows)


def _cell(name: str, figure: float) -> str:
    return f"{figure:.3f}" if name.endswith("_s") else f"{figure:,.0f}"
