"""Micro-batches of very many small files, and a landing log that grows with them."""

from collections.abc import Mapping
from typing import Any

from benchmarks.harness import Goal, Options, Report, Side, SideFailedError, Table, machine, module, run_side
from benchmarks.sides.many_files import RECORDS

_SMALL, _LARGE, _MICRO_BATCHES = 10, 100, 10
"""Files of a micro-batch, as multiples of the files in the options, and micro-batches of the large size."""

ABOUT = [
    f"Files of {RECORDS} records on the local disk go to bronze. `LAKE_MAX_FILES_PER_MICRO_BATCH` is the number of "
    "files of a micro-batch; by default, it is 10,000. All files have landed before the consumer starts, so the first "
    "look lists them all and records them in the landing log. *Trigger* is the whole micro-batch, from the look for it "
    "to its record in the checkpoint; *compute* and *commit* are parts of it. Memory is the highest resident memory "
    "since the start.",
]


def run(options: Options) -> Report:
    """Run one micro-batch of a tenth of the files, then ten large ones, one after another."""
    about_machine = machine()
    small, large = options.files * _SMALL, options.files * _LARGE
    found = {files: _figures(files, count) for files, count in ((small, 1), (large, _MICRO_BATCHES))}
    first, *_, last = found[large]["micro_batches"]
    return Report(
        name="many-files",
        title="Many files",
        about=ABOUT,
        goals=[
            Goal(
                "trigger of the last micro-batch over the second",
                last["trigger"] / found[large]["micro_batches"][1]["trigger"],
                at_most=1.3,
            ),
            Goal("commit of the last micro-batch over the first", last["commit"] / first["commit"], at_most=1.5),
            Goal(
                "driver's memory after the last micro-batch over the first", _driver(last) / _driver(first), at_most=1.3
            ),
        ],
        tables=[_table(f"{files:,} files in a micro-batch", each) for files, each in found.items()],
        machine=about_machine,
        options={"files": options.files, "records_of_a_file": RECORDS},
        raw=found,
    )


def _figures(files: int, micro_batches: int) -> dict[str, Any]:
    """Run the side; check that each file and record arrived."""
    figures = run_side(Side(f"{files:,} files", module("benchmarks.sides.many_files", files, micro_batches))).figures
    total = files * micro_batches
    if (figures["bronze"], figures["ledger"], figures["landed"]) != (total * RECORDS, total, total):
        raise SideFailedError(f"Of {total:,} files, {figures['ledger']:,} are in the ledger.")
    print(f"  {files:,} files a micro-batch: {figures['seconds']:.1f} s", flush=True)
    return figures


def _driver(micro_batch: Mapping[str, float]) -> float:
    """Return the memory of the driver's Python and JVM, in MiB."""
    return micro_batch["driver_mib"] + micro_batch["jvm_mib"]


def _table(title: str, figures: Mapping[str, Any]) -> Table:
    rows, landed = [], 0
    for each in figures["micro_batches"]:
        landed += each["files"]
        seconds = [f"{each[name]:.1f}" for name in ("trigger", "compute", "commit")]
        memory = [f"{each[name]:,.0f}" for name in ("driver_mib", "jvm_mib", "workers_mib")]
        rows.append([f"{landed:,}", *seconds, f"{each['files'] / each['trigger']:,.0f}", *memory])
    columns = ["files so far", "trigger, s", "compute", "commit", "files/s"]
    return Table(title, [*columns, "driver's Python, MiB", "JVM", "tasks"], rows)
