"""``make chaos``: run the whole grid."""

import itertools
import re
import shutil
import signal
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from tests.chaos.bench import Bench, Catalog, Options
from tests.chaos.grid import Row, Verdict, as_markdown, as_table, passed
from tests.chaos.scenarios import CLUSTER, FILES, KAFKA, LOCAL, MINIO, PROXIED, Part, run_scenario, scenarios

from lakeproof.contracts import SilverStrategy

_MOST_FILES = 100
"""The checks of each scenario read the whole lake: about ten scenarios share one."""


class Storage(StrEnum):
    """Storage of the lakes."""

    LOCAL = LOCAL
    MINIO = MINIO
    BOTH = "both"
    CLUSTER = CLUSTER


class Source(StrEnum):
    """Source of the batches."""

    FILES = FILES
    KAFKA = KAFKA
    BOTH = "both"


def main(
    storage: Annotated[
        Storage, typer.Option(help="Where the lakes are; cluster: in MinIO, with tasks on a cluster.")
    ] = Storage.BOTH,
    source: Annotated[Source, typer.Option(help="Where the batches come from.")] = Source.BOTH,
    kills: Annotated[int, typer.Option(min=1, help="Random kills, on each storage.")] = 50,
    seed: Annotated[int, typer.Option(help="Decides what lands, and when random kills come.")] = 1,
    part: Annotated[Part | None, typer.Option(help="Only this part of the grid.", show_default="all")] = None,
    catalog: Annotated[
        Catalog | None,
        typer.Option(help="Only with this catalog; servers are tried on local storage.", show_default="all"),
    ] = None,
    only: Annotated[str, typer.Option(metavar="REGEX", help="Only scenarios whose names contain this.")] = "",
    report: Annotated[Path | None, typer.Option(help="Write the grid here as Markdown.", dir_okay=False)] = None,
) -> None:
    """Hurt a consumer in every known way; exit 0 only if nothing was lost or doubled."""
    console = Console(width=None if sys.stdout.isatty() else 180)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all started processes are stopped then, too
    folder = Path(tempfile.mkdtemp(prefix="lakeproof-chaos-"))
    rows: list[Row] = []
    starts: list[float] = []
    storages = (LOCAL, MINIO) if storage is Storage.BOTH else (storage.value,)
    catalogs = (catalog,) if catalog else tuple(Catalog)
    sources = (FILES, KAFKA) if source is Source.BOTH else (source.value,)
    asked = [each for each in scenarios(kills) if re.search(only, each.name) and part in (None, each.part)]
    for where, kind, origin in itertools.product(storages, catalogs, sources):
        chosen = [each for each in asked if each.fits(where, kind, origin)]
        if not chosen:
            continue
        proxied = any(each.part in PROXIED for each in chosen)
        with Bench(_options(folder / where / kind / origin, where, kind, origin, seed, proxied)) as bench:
            for number, scenario in enumerate(chosen, start=1):
                row = run_scenario(scenario, bench)
                rows.append(row)
                words = "; ".join(row.outcome.why())
                console.print(
                    f"{bench.options.where} {number}/{len(chosen)} {row.outcome.verdict}: {scenario.name} · {words}"
                )
                if bench.has_lake and len(bench.lake.files) > _MOST_FILES:
                    bench.give_up()
            starts += bench.starts.values()
    console.print(as_table(rows))
    if starts:
        console.print(f"{len(starts)} starts after a fault; the slowest had begun after {max(starts):.1f} s.")
    if report:
        report.write_text(as_markdown(rows))
    if any(row.outcome.verdict is Verdict.RED for row in rows):
        console.print(f"Lakes and logs: {folder}")
    else:
        shutil.rmtree(folder)
    if not passed(rows):
        raise typer.Exit(1)


def _options(folder: Path, where: str, catalog: Catalog, origin: str, seed: int, proxied: bool) -> Options:
    """Return options; lakes in MinIO have silver's strategy `state`, so that both strategies are tried."""
    strategy = SilverStrategy.STATE if where == MINIO else SilverStrategy.MERGE
    in_minio, cluster = where != LOCAL, where == CLUSTER
    own = {"strategy": strategy, "kafka": origin == KAFKA, "cluster": cluster, "proxied": proxied}
    return Options(folder, in_minio, seed, catalog=catalog, **own)


if __name__ == "__main__":
    typer.run(main)
