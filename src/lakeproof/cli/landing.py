"""The commands of `lakeproof landing`."""

from typing import Annotated

import typer

from lakeproof.addresses import as_uri, folder_or_address
from lakeproof.contracts import contract_text
from lakeproof.errors import UsageError
from lakeproof.settings import load_settings

landing_commands = typer.Typer(help="The landing zones of the streams.", no_args_is_help=True)


@landing_commands.command()
def move(
    stream: Annotated[str, typer.Argument(help="Name of the stream.", show_default=False)],
    source: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|URI", help="New location, for a stream that runs with --source.", show_default=False
        ),
    ] = None,
    all_removed: Annotated[
        bool,
        typer.Option(
            "--all-removed", help="Accept a location without the files that were read, since all of them were removed."
        ),
    ] = False,
) -> None:
    """Record that the files of STREAM were moved or mounted elsewhere, as LAKE_LANDING or the contract says.

    This command moves no files, and no file is read again: files are identified by their names below the landing
    folder. It fails if the new folder has none of the newest files that were read before.
    """
    from lakeproof.catalog import catalog_errors, open_catalog
    from lakeproof.landing.root import check_same_files, record_landing_root
    from lakeproof.landing.zone import landing_zone
    from lakeproof.move.outside import check_tables
    from lakeproof.state.lease import lease
    from lakeproof.tables.names import stream_tables

    settings = load_settings()
    if source:
        landing = settings.landing.model_copy(update={"source": as_uri(folder_or_address(source))})
        settings = settings.model_copy(update={"landing": landing})
    contract_text(settings.contracts, stream)
    check_tables(settings)
    catalog = open_catalog(settings)
    zone = landing_zone(settings, stream)
    with catalog_errors(), lease(settings.state.database, stream):
        if not catalog.table_exists(stream_tables(stream).ledger):
            raise UsageError(
                f"The stream {stream} has not read any files yet.", "Set LAKE_LANDING and run the consumer."
            )
        looked, found = check_same_files(catalog, stream, zone, all_removed=all_removed)
        record_landing_root(catalog, stream, zone)
    typer.echo(f"The landing zone of {stream} is now {zone.root}. Found {found:,} of {looked:,} files.")
