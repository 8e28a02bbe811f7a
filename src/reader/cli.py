"""The command line of the reader."""

import sys
from typing import Annotated

import typer

from lakeproof.command import application, run
from lakeproof.doctor import Program, check_environment
from lakeproof.settings import Settings, load_settings
from reader.output import Format
from reader.verify.report import ReportFormat

app = application(
    "reader",
    "Read the lake with DuckDB: no Spark, no JVM.",
    ["LAKE_HOME", "LAKE_LANDING", "LAKE_CATALOG_URI", "LAKE_WAREHOUSE", "LAKE_CONTRACTS"],
)

FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]


def _settings() -> Settings:
    settings = load_settings()
    check_environment(settings, Program.READER)
    return settings


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

    with connect(_settings()) as session:
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

    raise typer.Exit(run_shell(_settings()))


@app.command()
def tables(output_format: FormatOption = Format.TABLE) -> None:
    """Say what each table has: rows, data files, bytes, snapshots, last commit. Reads metadata only."""
    from reader.tables import list_tables, write_tables

    write_tables(list_tables(_settings()), output_format, sys.stdout)


@app.command()
def summary(
    stream: Annotated[str, typer.Argument(help="Name of the stream.", show_default=False)],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until both tables have rows.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait at most.")] = 120.0,
) -> None:
    """Say what landed in a stream's tables, and why what did not."""
    from reader.summary import print_summary, wait_for_rows

    settings = _settings()
    if wait:
        wait_for_rows(settings, stream, timeout)
    print_summary(settings, stream)


@app.command()
def verify(
    stream: Annotated[
        str | None, typer.Argument(help="Name of the stream; without it, all that have tables.", show_default=False)
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="Also compare values of a sample of bronze rows with the landed bytes.")
    ] = False,
    report_format: Annotated[ReportFormat, typer.Option("--format", help="How to print it.")] = ReportFormat.TABLE,
) -> None:
    """Recount the landing zone, and say of each source whether each of its units is in one table, once.

    A source is ok, pending (not consumed yet), expired (its file is gone; tables and ledger agree), or it is off:

    lost (a unit is in no table, or the ledger lacks it), doubled (a row has no landed unit of its own), changed (what
    lies there is not what was read, or what is kept or booked is not what was landed).

    Exit code 0: clean. 1: a source is off. 2: could not check.
    """
    from reader.verify.report import write_report
    from reader.verify.streams import verify as verify_streams

    found = verify_streams(load_settings(), stream, values)
    write_report(found, report_format, sys.stdout)
    raise typer.Exit(not all(verification.clean for verification in found))


def main() -> None:
    """Run the command line."""
    run(app)
