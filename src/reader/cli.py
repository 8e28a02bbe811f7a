"""The command line of the reader."""

import sys
from typing import Annotated

import typer

from lakeproof.command import application, run
from lakeproof.settings import load_settings
from reader.output import Format

app = application("reader", "Read the lake with DuckDB: no Spark, no JVM.")

FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]


@app.command()
def sql(
    statement: Annotated[
        str, typer.Argument(help="One statement, or several with ; between them.", show_default=False)
    ],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Run SQL and print the result of the last statement.

    Tables go by their names in the catalog: bronze.events, dead_letters.events, … Raw files are in landing.<stream>,
    dead letters as text in dead_letters_text.<stream>, and as_text(raw) makes text of any blob.
    """
    from reader.connect import connect
    from reader.output import write_result

    with connect(load_settings()) as session:
        result = session.sql(statement)
        if result is not None:
            with session.errors():
                write_result(result, output_format, sys.stdout)


@app.command()
def shell() -> None:
    """Open DuckDB's shell with the tables in place; it sees new commits while it is open.

    Standard input is the shell's: echo "select 1;" | reader shell
    """
    from reader.shell import run_shell

    raise typer.Exit(run_shell(load_settings()))


@app.command()
def tables(output_format: FormatOption = Format.TABLE) -> None:
    """Say what each table has: rows, data files, bytes, snapshots, last commit. Reads metadata only."""
    from reader.tables import list_tables, write_tables

    write_tables(list_tables(load_settings()), output_format, sys.stdout)


@app.command()
def summary(
    stream: Annotated[str, typer.Argument(help="Name of the stream.", show_default=False)],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until both tables have rows.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait at most.")] = 120.0,
) -> None:
    """Say what landed in a stream's tables, and why what did not."""
    from reader.summary import print_summary, wait_for_rows

    settings = load_settings()
    if wait:
        wait_for_rows(settings, stream, timeout)
    print_summary(settings, stream)


def main() -> None:
    """Run the command line."""
    run(app)
