"""``reader verify --new`` after one more micro-batch, compared with ``--all``, on a proven lake."""

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import (
    WORK,
    Bars,
    Goal,
    Options,
    Report,
    Sample,
    Side,
    Table,
    machine,
    medians,
    module,
    run_side,
)
from benchmarks.inputs import STREAM, Input, land

FIRST = "the first proof (--all)"
ALL = "reader verify --all"
NEW = "reader verify --new"
NOTHING = "reader verify --new, nothing new"
_MORE_FILES = 10
_AT_MOST = 0.1
_RECORDS = 1_000

ABOUT = [
    f"The consumer takes a backlog of files of {_RECORDS:,} events, 5 % of them bad, through all layers, and `reader "
    f"verify` proves it. Then, again and again, {_MORE_FILES} files more land and are consumed, and `--new` proves "
    "what came. In the end `--all` proves everything once more. Seconds are those of the whole process; those of "
    "processors are changed least by other work on the machine.",
]


def run(options: Options) -> Report:
    """Fill a lake, prove it, and prove new micro-batches."""
    about_machine = machine()
    more = _MORE_FILES * options.repeat
    landed = land(Input(options.files + more, invalid=0.05))
    paths = sorted(landed.paths())
    WORK.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="verify-new-", dir=WORK) as home:
        environment = {"LAKE_HOME": home, "LAKE_LANDING": f"{home}/landing"}
        consume = Side("consumer", module("consumer", "run", STREAM, "--available-now"), environment)

        def take(files: Sequence[Path]) -> None:
            for path in files:
                target = Path(home, "landing", STREAM, path.relative_to(landed.folder))
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, target)
            run_side(consume)

        def prove(name: str, *how: str) -> Sample:
            return run_side(Side(name, module("reader", "verify", STREAM, *how), environment))

        take(paths[: options.files])
        samples = [prove(FIRST, "--all")]
        for start in range(options.files, options.files + more, _MORE_FILES):
            take(paths[start : start + _MORE_FILES])
            samples.append(prove(NEW, "--new"))
        samples += [
            prove(name, how) for _ in range(options.repeat) for name, how in ((NOTHING, "--new"), (ALL, "--all"))
        ]
    found = medians(samples)
    return Report(
        name="verify-new",
        title="Verify what is new",
        about=ABOUT,
        goals=[
            Goal(
                f"processor time of `{NEW}` over that of `{ALL}`",
                found[NEW].cpu_seconds / found[ALL].cpu_seconds,
                at_most=_AT_MOST,
            )
        ],
        tables=[
            Table("Times", ["proof", "seconds", "processor, s", "peak MiB"], [_row(*each) for each in found.items()])
        ],
        machine=about_machine,
        options={"files": options.files, "files_of_a_micro_batch": _MORE_FILES, "runs_of_each_side": options.repeat},
        bars=[
            Bars(
                f"{options.files * _RECORDS:,} records",
                "seconds",
                list(found),
                {"seconds": [round(sample.seconds, 2) for sample in found.values()]},
            )
        ],
        raw=[sample.as_dict() for sample in samples],
    )


def _row(name: str, sample: Sample) -> list[str]:
    return [name, f"{sample.seconds:.2f}", f"{sample.cpu_seconds:.2f}", f"{sample.peak_rss_mib:,.0f}"]
