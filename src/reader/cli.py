"""The command line of the reader."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from lakeproof.command import application, print_error, run
from lakeproof.doctor import Program, check_environment
from lakeproof.errors import OutputClosedError, OutputError, UsageError
from lakeproof.move.outside import warn_of_tables
from lakeproof.settings import Settings, load_settings
from lakeproof.standard_streams import drop_output
from reader.letters import LetterState
from reader.output import Format
from reader.verify.report import ReportFormat

app = application(
    "reader",
    "Read the lake with DuckDB, without Spark and without a JVM.",
    ["LAKE_HOME", "LAKE_LANDING", "LAKE_CATALOG_URI", "LAKE_WAREHOUSE", "LAKE_CONTRACTS"],
)

FormatOption = Annotated[Format, typer.Option("--format", help="Output format.")]


_PAGE = Path("lake.html")
_EVERY = 60.0  # seconds


def _settings() -> Settings:
    settings = load_settings()
    check_environment(settings, Program.READER)
    warn_of_tables(settings)
    return settings


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(help="One or more statements, separated by ;.", show_default=False)],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Run SQL and print the result of the last statement.

    Tables have the names of the catalog: bronze.events, dead_letters.events, silver.events, … landing.<stream> contains
    the landed files, and dead_letters_text.<stream> the dead letters as text. as_text(raw) converts any blob to text.
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
    """Open DuckDB's shell on the tables of the lake. An open shell sees new commits.

    The shell reads standard input: echo "select 1;" | reader shell
    """
    from reader.shell import run_shell

    raise typer.Exit(run_shell(_settings()))


@app.command()
def serve() -> None:
    """Serve the catalog, read-only, to DuckDB, Spark, PyIceberg and every other client of Iceberg's REST protocol.

    Clients need the token, and access to the files of the tables. The settings are LAKE_SERVE_HOST, LAKE_SERVE_PORT and
    LAKE_SERVE_TOKEN. Ctrl-C or SIGTERM ends the server.
    """
    from reader.serve import run_server

    run_server(_settings())


@app.command()
def tables(output_format: FormatOption = Format.TABLE) -> None:
    """List the tables: rows, data files, bytes, snapshots, last commit. Reads metadata only."""
    from reader.tables import list_tables, write_tables

    write_tables(list_tables(_settings()), output_format, sys.stdout)


@app.command()
def summary(
    stream: Annotated[str, typer.Argument(help="Name of the stream.", show_default=False)],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the tables have rows.")] = False,
    new: Annotated[
        bool, typer.Option("--new", help="Wait for new rows, and count only rows written from now on.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Maximum number of seconds to wait.")] = 120.0,
) -> None:
    """Show what is in the tables of a stream: rows, dead letters by reason, silver by verdict, and gold."""
    from reader.summary import print_summary, wait_for_rows

    settings = _settings()
    since = datetime.now(UTC) if new else None
    if wait or new:
        wait_for_rows(settings, stream, timeout, new=new)
    print_summary(settings, stream, since)


@app.command("dead-letters")
def dead_letters(
    stream: Annotated[str, typer.Argument(help="Name of the stream.", show_default=False)],
    state: Annotated[
        list[LetterState] | None,
        typer.Option(
            help="Only dead letters in this state; can be repeated. Default: open, parked.", show_default=False
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Only dead letters that meet this condition.", show_default=False),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write their bytes to a new file, one per line; if FILE ends with /, to a folder, one per file.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the dead letters by reason, hour, source and key, with an example of each reason.

    A dead letter is open until a replay lands its records, which closes it, or until it has failed the maximum number
    of attempts, which parks it. First and last seen are the landing times of the dead letters.

    A condition is SQL on the columns of dead_letters_text.<stream>: reasons, codes (those of the reasons), raw (as
    text), state, attempts, _source, _position, _landed_at, …
    """
    from reader.connect import connect
    from reader.dead_letters.command import show_or_export

    states = list(dict.fromkeys(state or (LetterState.OPEN, LetterState.PARKED)))
    settings = _settings()
    with connect(settings) as session:
        show_or_export(session, settings, stream, states, where, output_format, export)


@app.command()
def plot(
    name: Annotated[
        str, typer.Argument(help="Name of the data product; with --device, also of the stream.", show_default=False)
    ],
    measure: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Measure to draw; can be repeated. Default: all numeric measures."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Draw only these keys; can be repeated.", show_default=False),
    ] = None,
    top: Annotated[
        int,
        typer.Option(min=1, max=26, help="Maximum number of keys: those with the greatest sum of the first measure."),
    ] = 5,
    device: Annotated[
        str | None,
        typer.Option(help="Draw the readings of this device, its samples and its anomalies.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw to a file, like plot.png. Default: the terminal.")
    ] = None,
) -> None:
    """Draw a data product over time, with a panel for each measure and a line for each combination of keys.

    A point is the value of a window, at the start of the window. A window without records has no point.
    """
    from reader.plot.device import read_device
    from reader.plot.series import read_plot

    if device is not None and (measure or key):
        raise UsageError("--device cannot be used with --measure or --key.", "Remove one of them.")
    found = (
        read_plot(_settings(), name, measure or (), key or (), top)
        if device is None
        else read_device(_settings(), name, device)
    )
    if output:
        from reader.plot.image import write_image

        write_image(found, output)
        return
    from reader.output import console
    from reader.plot.terminal import as_text

    sys.stdout.write(as_text(found, console().width))


@app.command()
def page(
    stream: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STREAM...]", help="Names of streams. Default: all streams with tables.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"File to write. Default: {_PAGE}.", show_default=False),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page instead of writing it. It refreshes after each commit.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="With --serve: address to listen on. Any other than 127.0.0.1 requires a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="With --serve: port to listen on; 0: any. Default: 8282, or any other if 8282 is in use.",
            show_default=False,
        ),
    ] = None,
    port_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --serve: file to write the port to.", show_default=False),
    ] = None,
) -> None:
    """Write a page of the lake: one HTML file that works offline and by mail.

    Its first line says whether all is well, or what is wrong and since when. For each stream, it then shows where each
    unit went, with the SQL of each number, reasons with examples, freshness, the last proof, data products, contract,
    micro-batches and tables.
    """
    if serve and out is not None:
        raise UsageError("--serve cannot be used with --out.", "Remove one of them.")
    settings = _settings()
    if serve:
        from reader.page.server import run_page

        run_page(settings, stream or (), host, port, port_file)
        return
    from reader.page.command import write_page

    write_page(settings, stream or (), out or _PAGE)


@app.command()
def verify(
    stream: Annotated[
        str | None, typer.Argument(help="Name of the stream. Default: all streams with tables.", show_default=False)
    ] = None,
    only_new: Annotated[
        bool | None,
        typer.Option(
            "--new/--all",
            help="Prove only what is new since the last clean proof, or everything, which is the default.",
            show_default=False,
        ),
    ] = None,
    values: Annotated[
        bool,
        typer.Option("--values", help="Also compare the values of all bronze rows that are read with what landed."),
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option(metavar="ROWS", min=1, help="Compare the values of ROWS random rows only.", show_default=False),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Prove what is new every --every seconds, with a line for each proof.")
    ] = False,
    every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            help=f"With --follow: seconds between the starts of proofs. Default: {_EVERY:g}.",
            show_default=False,
        ),
    ] = None,
    receipts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also check the collector's receipts in this file (JSON lines). Requires the name of the stream.",
        ),
    ] = None,
    report_format: Annotated[ReportFormat, typer.Option("--format", help="Output format.")] = ReportFormat.TABLE,
) -> None:
    """Recount the landing zone, and check that each unit of each source is in exactly one table, once.

    A source is ok, pending (not consumed yet), expired (the file was removed; tables and ledger agree), or erased
    (records of it were erased; the ledger says how many).

    Otherwise it has a problem: lost (a unit is in no table, or not in the ledger), doubled (a row has no landed unit of
    its own), or changed (the file is not the one that was read, or the tables or the ledger differ from it).

    For a stream with silver, verify also recomputes the verdict on each row of bronze, and checks that the silver
    tables have exactly these rows. Rows of bronze that silver has not read yet are undecided, which is not a problem.

    For each data product that reads the stream, it also recomputes the windows from silver, and compares them with the
    table of gold. If gold is behind silver, the rows that it does not have yet are ignored.

    If a declared table of silver or gold does not exist, that is a problem if a consumer has run its query before.

    With --receipts, it also checks that each event that the collector has accepted is in bronze once and in silver
    once, or is a dead letter.

    Each proof is recorded in the book of proofs in the state database, with the data files that were read. With --new,
    files in the book are not read again: rows of new micro-batches, their verdicts and their windows are recomputed;
    rows that were proven before are compared by hashes, whatever files they are in now. `reader proofs` lists the book.

    With --follow, verify runs until SIGINT or SIGTERM; its exit code is that of the last proof.

    Exit codes: 0 clean, 1 a source, a table of silver or gold, or a receipt has a problem, 2 could not check a stream,
    or could not write the report.
    """
    from lakeproof.state.proofs import ProofKind
    from reader.verify.check import exit_code
    from reader.verify.driver import verify as verify_streams
    from reader.verify.report import write_report

    _check_options_of_verify(only_new=only_new, follow=follow, every=every, receipts=receipts)
    settings = load_settings()
    warn_of_tables(settings)
    values = values or sample is not None
    if follow:
        from reader.verify.follow import follow as follow_streams

        with _written():
            code = follow_streams(settings, stream, every or _EVERY, report_format, values, sample)
        raise typer.Exit(code)
    found = verify_streams(settings, stream, values, receipts, ProofKind.NEW if only_new else ProofKind.ALL, sample)
    with _written():
        write_report(found, report_format, sys.stdout)
    for each in found:
        if each.error:
            print_error(each.error)
    raise typer.Exit(exit_code(found))


def _check_options_of_verify(
    *, only_new: bool | None, follow: bool, every: float | None, receipts: Path | None
) -> None:
    if not follow and every is not None:
        raise UsageError("--every is for --follow.", "Add --follow.")
    if follow and receipts:
        raise UsageError("--follow cannot be used with --receipts.", "Remove one of them.")
    if follow and only_new is False:
        raise UsageError("--follow proves only what is new, so it cannot be used with --all.", "Remove one of them.")


@contextmanager
def _written() -> Iterator[None]:
    """Give a report that cannot be written an exit code of its own."""
    from reader.verify.report import UnwrittenError

    try:
        yield
        sys.stdout.flush()
    except OutputClosedError:
        raise
    except OutputError as error:
        drop_output()  # else, the next flush would fail again
        raise UnwrittenError(error.message, error.hint) from error


@app.command()
def proofs(
    stream: Annotated[str | None, typer.Argument(help="Name of the stream. Default: all.", show_default=False)] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with the position that each proof reached.")
    ] = False,
) -> None:
    """List the book of proofs: what `reader verify` has proven, when, by whom, up to where, and the result."""
    from reader.verify.book.listing import write_proofs

    write_proofs(load_settings(), stream, sys.stdout, as_json=as_json)


def main() -> None:
    """Run the command line."""
    run(app)
