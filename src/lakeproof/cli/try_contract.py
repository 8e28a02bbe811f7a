"""`lakeproof contract try`, and the forecast that `lakeproof contract apply` shows before it asks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeproof.command import wide_console
from lakeproof.contracts.read.odcs import contract_text
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import Settings, load_settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from lakeproof.contracts import Contract
    from lakeproof.whatif.forecast import Forecast

_SAMPLE = 100_000
_SMALL_SAMPLE = 10_000
_BRONZE_CHANGES = 13


class ForecastFormat(StrEnum):
    """Output format of a forecast."""

    TABLE = "table"
    JSON = "json"


def try_contract(
    stream: Annotated[str, typer.Argument(metavar="NAME", help="Name of the stream.")],
    new: Annotated[
        Path | None,
        typer.Option(
            "--with", metavar="FILE", help="The contract to try. Default: contracts/NAME.yaml.", show_default=False
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Judge N rows of bronze and N dead letters, evenly spaced. Default: {_SAMPLE:,}.",
            show_default=False,
        ),
    ] = None,
    judge_all: Annotated[bool, typer.Option("--all", help="Judge everything that has landed.")] = False,
    output_format: Annotated[ForecastFormat, typer.Option("--format", help="table or json.")] = ForecastFormat.TABLE,
) -> None:
    """Judge landed units by a contract that is not applied, and show which outcomes would change. Nothing is changed.

    Dead letters are judged from their bytes, as in a replay under this contract. Rows of bronze are judged from their
    columns; the command lists what cannot be decided from them. Size limits and judge are those of the settings.

    Exit codes: 0 no row of bronze would become a dead letter, 13 some would, 2 the contract is rejected or cannot be
    applied, 3 the lake cannot be reached.
    """
    if sample is not None and judge_all:
        raise UsageError("--sample and --all exclude each other.", "Leave out one of them.")
    settings = load_settings()
    text, origin = _text(settings, stream, new)
    from lakeproof.catalog import catalog_errors, open_catalog
    from lakeproof.history.apply import plan_text
    from lakeproof.move.outside import check_tables
    from lakeproof.whatif.forecast import Effect
    from lakeproof.whatif.report import write

    check_tables(settings)
    catalog = open_catalog(settings)
    with catalog_errors():
        planned = plan_text(catalog, stream, text, origin)
        if planned.creates and not planned.past:
            contract_text(settings.contracts, stream)  # an unknown stream is an error, not an empty one
        chosen = None if judge_all else sample or _SAMPLE
        found = _forecast(catalog, settings, planned.contract, chosen)
    write(found, wide_console(), json_wanted=output_format is ForecastFormat.JSON)
    raise typer.Exit(_BRONZE_CHANGES if found.bronze.units(Effect.TO_DEAD_LETTERS) else 0)


def show_forecast(catalog: "Catalog", settings: Settings, contract: "Contract") -> None:
    """Show what a contract would change, from a sample; an error is shown in its place."""
    from lakeproof.catalog import catalog_errors
    from lakeproof.whatif.report import show

    try:
        with catalog_errors():
            found = _forecast(catalog, settings, contract, _SMALL_SAMPLE)
    except LakeproofError as error:
        sys.stderr.write(f"Warning: what would change is not known: {error}\n")
        return
    show(found, wide_console())


def _forecast(catalog: "Catalog", settings: Settings, contract: "Contract", sample: int | None) -> "Forecast":
    from lakeproof.whatif.forecast import forecast

    with _progress() as progress:
        return forecast(catalog, settings, contract, sample, progress)


@contextmanager
def _progress() -> Iterator[Callable[[int], Callable[[int], None]] | None]:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Judging"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def begin(rows: int) -> Callable[[int], None]:
            task = bar.add_task("", total=rows)
            return lambda count: bar.advance(task, count)

        yield begin


def _text(settings: Settings, stream: str, new: Path | None) -> tuple[bytes, str]:
    if new is None:
        return contract_text(settings.contracts, stream), str(settings.contracts / f"{stream}.yaml")
    try:
        return new.read_bytes(), str(new)
    except OSError as error:
        raise UsageError(f"{new}: {error.strerror}.", "--with takes the path of a contract.") from None
