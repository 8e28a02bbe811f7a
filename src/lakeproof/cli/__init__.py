"""Command line of `lakeproof`: checks of the machine, settings, contracts and more."""

import sys
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from lakeproof.addresses import without_password
from lakeproof.cli.backup import backup, restore
from lakeproof.cli.cluster import cluster_commands
from lakeproof.cli.connect import connect
from lakeproof.cli.contract import contract_commands
from lakeproof.cli.demo import demo_commands
from lakeproof.cli.gold import gold_commands
from lakeproof.cli.hold import hold
from lakeproof.cli.landing import landing_commands
from lakeproof.cli.move import move
from lakeproof.cli.setup import init, jars, setup
from lakeproof.command import application, run, wide_console
from lakeproof.doctor import Program, checks_for, checks_of_streams, examine
from lakeproof.errors import UsageError
from lakeproof.settings import VARIABLES, Settings, load_settings
from lakeproof.settings.help import as_markdown, by_group, epilog, settings_in_words

app = application(
    "lakeproof",
    "Set up this machine and a project, manage contracts, check data products, and show the settings of all programs.",
    judges=True,
)
app.command()(init)
app.command()(setup)
app.command()(connect)
app.command()(hold)
app.command()(move)
app.command()(backup)
app.command()(restore)
app.command(hidden=True)(jars)
app.add_typer(demo_commands, name="demo")
app.add_typer(cluster_commands, name="cluster")
app.add_typer(contract_commands, name="contract")
app.add_typer(gold_commands, name="gold")
app.add_typer(landing_commands, name="landing")


@app.command()
def doctor(
    program: Annotated[
        Program | None, typer.Option("--for", help="Check only the requirements of this program.", show_default=False)
    ] = None,
) -> None:
    """Check the requirements: Java, jars, judge, folders, ports, buckets, catalog, and the streams' landing zones.

    Exits with 1 if a check fails.
    """
    settings = load_settings()
    # Two programs may check the same folder for reading and writing: the later, stricter check is enough.
    order = [program] if program else [Program.READER, Program.CONSUMER, Program.PRODUCER]
    checks = {
        check.name: check
        for each in order
        for check in (*checks_for(settings, each), *checks_of_streams(settings, each))
    }
    console = wide_console()
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


@app.command("settings", epilog=epilog())
def show_settings(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Print only the values of these settings, one per line.", show_default=False),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print all settings as a Markdown table.")] = False,
) -> None:
    """Print the settings that the programs use, from the environment and .env. Passwords are masked."""
    if markdown:
        sys.stdout.write(as_markdown())
        return
    settings = load_settings()
    values = {setting.variable: _shown(settings, setting.field) for setting in settings_in_words()}
    if names:
        sys.stdout.writelines(f"{values[_variable(name)]}\n" for name in names)
        return
    table = Table("setting", "value", box=None, pad_edge=False)
    for group, each in by_group():
        table.add_row(f"[bold]{group}[/]", "")
        for setting in each:
            table.add_row(f"  {setting.variable}", escape(values[setting.variable]))
    wide_console().print(table)


def _variable(name: str) -> str:
    """The variable of a setting, given in any case and with or without LAKE_."""
    for variable in (name.upper(), f"LAKE_{name.upper()}"):
        if variable in VARIABLES:
            return variable
    raise UsageError(f"There is no setting {name!r}.", "`lakeproof settings` lists all settings.")


def _shown(settings: Settings, field: str) -> str:
    value = attrgetter("catalog.warehouse_uri" if field == "catalog.warehouse" else field)(settings)
    if value is None:
        return ""
    return without_password(str(value.absolute() if isinstance(value, Path) else value))


def main() -> None:
    """Run the program."""
    run(app)
