"""Run benchmarks: ``python -m benchmarks [NAME ...]``; without a name, all of them."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.harness import Options, Report, SideFailedError
from benchmarks.report import render, show, write_report

NAMES = (
    "alerts",
    "backlog",
    "backlog-minio",
    "cluster",
    "collector",
    "freshness",
    "freshness-kafka",
    "freshness-layers",
    "flat",
    "hashes",
    "history",
    "judge",
    "kafka",
    "maintenance",
    "many-files",
    "medallion",
    "memory",
    "model",
    "modes",
    "replay",
    "samples",
    "silver",
    "soak",
    "start",
    "verify",
    "verify-new",
    "what-if",
)


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help=f"{', '.join(NAMES)}.")] = None,
    files: Annotated[int, typer.Option(min=1, help="Files of a backlog.")] = Options.files,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each side; the median counts.")] = Options.repeat,
    seconds: Annotated[int, typer.Option(min=1, help="How long a steady load lasts.")] = Options.seconds,
    predict: Annotated[
        bool, typer.Option("--predict", help="`model`: measure nothing, and take docs/benchmarks/model.json.")
    ] = False,
    dry: Annotated[bool, typer.Option("--dry", help="Print, and write nothing to docs/benchmarks/.")] = False,
    redraw: Annotated[bool, typer.Option("--redraw", help="Measure nothing: make pages and pictures anew.")] = False,
) -> None:
    """Run benchmarks, print the results, and write them to docs/benchmarks/."""
    unknown = set(names or ()) - set(NAMES)
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: there are {', '.join(NAMES)}.")
    if redraw:
        render()
        return
    console = Console()
    options = Options(files, repeat, seconds, predict)
    failed = [name for name in names or NAMES if not _run(name, options, console, dry=dry)]
    sys.exit(1 if failed else 0)


def _run(name: str, options: Options, console: Console, *, dry: bool) -> bool:
    console.rule(name)
    run: Callable[[Options], Report] = import_module(f"benchmarks.{name.replace('-', '_')}").run
    try:
        report = run(options)
    except SideFailedError as error:
        console.print(f"Error: {error}", style="red", markup=False, highlight=False)
        return False
    show(report, console)
    if not dry:
        write_report(report)
    return True


if __name__ == "__main__":
    if find_spec("matplotlib") is None:
        sys.exit("Error: matplotlib is missing.\n  Run `deploy/setup.sh bench`, or `make bench`, which does.")
    typer.run(main)
