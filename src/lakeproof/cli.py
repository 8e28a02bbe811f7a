"""The command line of what belongs to no program: checks of the machine, the settings, and contracts."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lakeproof.addresses import without_password
from lakeproof.command import application, run
from lakeproof.contracts.commands import contract_commands
from lakeproof.doctor import Program, checks_for, examine
from lakeproof.errors import UsageError
from lakeproof.landing.commands import landing_commands
from lakeproof.settings import Settings, load_settings

_WIDE = 500

app = application("lakeproof", "Check this machine, manage contracts, and show the settings that all programs share.")
app.add_typer(contract_commands, name="contract")
app.add_typer(landing_commands, name="landing")


@app.command()
def doctor(
    program: Annotated[
        Program | None, typer.Option("--for", help="Check the requirements of one program only.", show_default=False)
    ] = None,
) -> None:
    """Check the requirements: Java, jars, folders, ports, buckets, the catalog. Exits with 1 if a check fails."""
    settings = load_settings()
    # Two programs may check the same folder, for reading and for writing: the later, stricter check is enough.
    order = [program] if program else [Program.READER, Program.CONSUMER, Program.PRODUCER]
    checks = {check.name: check for each in order for check in checks_for(settings, each)}
    console = _console()
    table = Table("check", "", "found", box=None, pad_edge=False)
    failed = False
    with console.status("Checking …"):
        for finding in examine(list(checks.values())):
            state = "[green]ok[/]"
            if finding.error:
                state = "[yellow]warning[/]" if finding.check.optional else "[red]failed[/]"
                failed = failed or not finding.check.optional
            table.add_row(finding.check.name, state, escape(finding.detail))
            if finding.error and finding.error.hint:
                table.add_row("", "", f"[dim]{escape(finding.error.hint)}[/]")
    console.print(table)
    raise typer.Exit(1 if failed else 0)


@app.command("settings")
def show_settings(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Print only the values of these, one per line.", show_default=False),
    ] = None,
) -> None:
    """Print the settings that the programs use, from the environment and .env. Passwords are masked."""
    values = _values(load_settings())
    if unknown := [name for name in names or () if name not in values]:
        raise UsageError(f"Unknown setting {unknown[0]!r}.", f"Available settings: {', '.join(values)}.")
    if names:
        sys.stdout.writelines(f"{values[name]}\n" for name in names)
        return
    table = Table("setting", "value", box=None, pad_edge=False)
    for key, value in values.items():
        table.add_row(key, escape(value))
    _console().print(table)


def _console() -> Console:
    """A console that does not break lines where no person watches."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


def _values(settings: Settings) -> dict[str, str]:
    """Every setting by its name, as the programs take it."""
    taken = {
        "landing": settings.landing_uri,
        "warehouse": settings.warehouse_uri,
        "checkpoints": settings.checkpoints_uri,
        "logs": settings.logs_dir,
        "catalog_uri": settings.catalog_database,
        "landing_log_uri": settings.landing_log_database,
    }
    names = [name for name in type(settings).model_fields if name != "s3"]
    values = {name: _shown(taken.get(name, getattr(settings, name))) for name in names}
    return values | {f"s3.{name}": _shown(getattr(settings.s3, name)) for name in type(settings.s3).model_fields}


def _shown(value: object) -> str:
    if value is None:
        return ""
    return without_password(str(value.absolute() if isinstance(value, Path) else value))


def main() -> None:
    """Run the program."""
    run(app)
