"""The position from which a query resumes after a restart: checkpoint, landing log and tables must agree."""

from collections.abc import Iterator

from pyiceberg.table import Table

from lakeproof.checkpoint import read_checkpoint
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandedFile, LandingLog, Position
from lakeproof.tables.names import REPLAY


def place_to_go_on(
    settings: Settings, query: str, log: LandingLog, ledger: Table, accounted: Position | None
) -> Position:
    """Find the position after which a query's next micro-batch begins, and bring the landing log there.

    A landing log that was lost, or is older than the tables, is rebuilt from the ledger, but only if no checkpoint
    refers to its content.
    """
    checkpoint = read_checkpoint(settings, query)
    place = accounted or Position(0, log.base.chain)
    if checkpoint and not checkpoint.fits(place):
        raise LakeproofError(
            f"The checkpoint of {query} is at position {(checkpoint.passed or checkpoint.end).seq:,} of the landing "
            f"log, but its tables are at position {place.seq:,}.",
            _reset(query),
        )
    if checkpoint and not all(map(log.has, (place, checkpoint.end))):
        raise LakeproofError(
            f"The checkpoint of {query} is at position {checkpoint.end.seq:,}, which the landing log does not have. It "
            "is another landing log, or an older copy.",
            f"Restore it, or set LAKE_LANDING_LOG_URI to its address. Or: {_reset(query)}",
        )
    if not log.has(place):
        log.rebuild(place, _accounted_files(ledger) if accounted else ())
    return place


def _accounted_files(ledger: Table) -> Iterator[LandedFile]:
    fields = ("source", "size", "etag", "landed_at")
    for batch in ledger.scan(f"{REPLAY} IS NULL", selected_fields=fields).to_arrow_batch_reader():
        for row in batch.to_pylist():
            yield LandedFile(0, row["source"], row["size"], row["etag"], row["landed_at"])


def _reset(query: str) -> str:
    stream = query.partition("-")[2]
    return f"Run `consumer reset {stream}`, to resume from the position in the tables. Nothing is read twice."
