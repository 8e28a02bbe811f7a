"""Gain of maintenance: queries over many small files, and commits to a table with a long history."""

import os
from collections.abc import Mapping
from typing import Any

from benchmarks.flat import ratio
from benchmarks.harness import Bars, Goal, Options, Report, Side, Table, machine, module, run_side
from benchmarks.minio import Minio, run_minio

_FILES_TIMES = 5
_FEW_SNAPSHOTS = 10
_EQUAL = 1.2  # two equal runs differ by this much
_UNMAINTAINED = 1.5
_BUCKET = "bench"
_SHOWN = ("p50_s", "p99_s", "processor_s", "prepare_s", "commit_s")
_LOCAL, _MINIO = "local", "MinIO"

ABOUT = [
    "*Files*: `bronze.events` with so many files of 200 rows in three days, one commit each; then "
    "`maintain_table`, which is what `consumer maintain` does to a table, with all snapshots but the "
    "newest expired. The same queries before and after it, in DuckDB and in Spark, whose answers must be equal; "
    "medians of 3 runs. *All rows*: a count, a distinct count and the first and last "
    "time of each of 500 users. *An hour*: a count of the first hour. *Planning*: Iceberg lists the files of a scan.",
    "*Commits*: `append_once` of one data file as in [flat](flat.md), medians of 30: to a table with few "
    "snapshots, with many, with many that were maintained, and with many whose metadata files are compressed "
    "(`write.metadata.compression-codec=gzip`).",
]


def run(options: Options) -> Report:
    """Compact once, and time commits on a local disk and on MinIO."""
    about_machine = machine()
    many = options.files * _FILES_TIMES
    compacted = run_side(Side("compaction", module("benchmarks.sides.compaction", many))).figures
    with run_minio() as minio:
        minio.make_bucket(_BUCKET)
        commits = {_LOCAL: _commits(many, {}), _MINIO: _commits(many, _in_minio(minio))}
    before, after = compacted["before"], compacted["after"]
    sizes = [
        f"{number:,} → {other:,}" for number, other in (compacted[each] for each in ("files", "bytes", "snapshots"))
    ]
    return Report(
        name="maintenance",
        title="Maintenance",
        about=ABOUT,
        goals=[
            *(_goal(place, "maintained", found, _EQUAL) for place, found in commits.items()),
            *(_goal(place, "unmaintained", found, _UNMAINTAINED) for place, found in commits.items()),
        ],
        tables=[
            Table(
                "Before and after",
                ["what", "before", "after", "times as fast"],
                [_row(what, before[what], after[what]) for what in before],
            ),
            Table(
                "Compaction",
                ["rows", "seconds", "data files", "bytes", "snapshots"],
                [[f"{compacted['rows']:,}", f"{compacted['maintenance_s']:.1f}", *sizes]],
            ),
            Table(
                "Commits",
                ["table", "p50, s", "p99, s", "processor, s", "prepare, s", "commit, s"],
                [
                    [f"{place}, {what}", *(f"{found[key]:.3f}" for key in _SHOWN)]
                    for place, by_kind in commits.items()
                    for what, found in by_kind.items()
                ],
            ),
        ],
        machine=about_machine | {"load at the end": f"{os.getloadavg()[0]:.2f} (1 minute)"},
        options={"files": many, "snapshots": [_FEW_SNAPSHOTS, many]},
        bars=[
            Bars(
                f"The same query over {many:,} small files",
                "seconds",
                [what for what in before if what != "manifests"],
                {
                    side: [round(found[what], 3) for what in before if what != "manifests"]
                    for side, found in (("before", before), ("after", after))
                },
            )
        ],
        raw={"compaction": compacted, "commits": commits},
    )


def _commits(many: int, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    sides = {
        f"{_FEW_SNAPSHOTS} snapshots": (_FEW_SNAPSHOTS,),
        "unmaintained": (many,),
        "unmaintained, compressed": (many, "gzip"),
        "maintained": (many, "maintained"),
    }
    return {
        name: run_side(Side(name, module("benchmarks.flat_commits", *arguments), environment)).figures
        for name, arguments in sides.items()
    }


def _goal(place: str, what: str, found: Mapping[str, Mapping[str, float]], at_most: float) -> Goal:
    few = found[f"{_FEW_SNAPSHOTS} snapshots"]
    text = f"commit, {place}: {what} over {_FEW_SNAPSHOTS} snapshots"
    return Goal(text, ratio({"few": few, "many": found[what]}, "p50_s"), at_most=at_most)


def _in_minio(minio: Minio) -> dict[str, str]:
    return minio.environment() | {
        "LAKE_LANDING": f"s3://{_BUCKET}/{{run}}/landing",
        "LAKE_WAREHOUSE": f"s3://{_BUCKET}/{{run}}/warehouse",
    }


def _row(what: str, before: float, after: float) -> list[str]:
    if what == "manifests":
        return [what, f"{before:,.0f}", f"{after:,.0f}", ""]
    return [f"{what}, s", f"{before:.3f}", f"{after:.3f}", f"{before / after:.1f}"]
