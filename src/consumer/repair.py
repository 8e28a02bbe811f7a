"""What an operator does to a stream that is stopped: start from the tables again, or give up files that are gone."""

from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.checkpoint import bronze_query, checkpoint_folder, remove_checkpoint
from lakeproof.errors import UnavailableError
from lakeproof.landing.zone import landing_zone
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandingLog, Position, is_origin
from lakeproof.state.lease import lease
from lakeproof.storage.local import local_path
from lakeproof.tables.names import stream_tables


def reset(settings: Settings, stream: str) -> str:
    """Remove a stream's checkpoint; return a line that says what was done.

    Raises
    ------
    LeaseHeldError
        A consumer runs the stream.
    UnavailableError
        The checkpoint cannot be removed.
    """
    query = bronze_query(stream)
    with lease(settings.state.database, stream):
        removed = remove_checkpoint(settings, query)
    where = checkpoint_folder(settings, query)
    return (
        f"Removed {where}. The next run resumes from the position in the tables."
        if removed
        else f"No checkpoint found in {where}. The next run resumes from the position in the tables."
    )


def absent_files(settings: Settings, stream: str) -> list[str]:
    """Names of the files that were discovered, were not given up, are in no table, and are not in the landing zone.

    Raises
    ------
    UnavailableError
        The landing zone, the landing log or the catalog cannot be read.
    """
    zone = landing_zone(settings, stream)
    if not zone.is_there():
        raise UnavailableError(f"The landing folder {local_path(zone.root)} does not exist.", "Mount its disk.")
    log = LandingLog(settings.state.database, stream)
    there = {name for name, _ in zone.list()}
    given_up = log.given_up()
    waiting = log.files(_accounted(settings, stream, log).seq, log.head().seq)
    return [file.name for file in waiting if file.name not in there and file.name not in given_up]


def give_up(settings: Settings, stream: str, names: list[str]) -> None:
    """Let files become dead letters if they are absent when the consumer comes to them."""
    LandingLog(settings.state.database, stream).give_up(names)


def _accounted(settings: Settings, stream: str, log: LandingLog) -> Position:
    from consumer.commit.recovery import standing

    names = stream_tables(stream)
    with catalog_errors():
        catalog = open_catalog(settings)
        read = catalog.table_exists(names.ledger)
        accounted = standing(catalog, names, bronze_query(stream), is_origin).accounted if read else None
    position = Position.parse(accounted) if accounted else log.base
    return position if log.has(position) else log.base
