"""The landing folder of a stream, recorded in its ledger so that a change is noticed."""

from typing import TYPE_CHECKING

from lakeproof.errors import UsageError
from lakeproof.landing.zone import LandingZone
from lakeproof.tables.names import LANDING_ROOT, stream_tables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_LOOKED_AT = 1000


def check_landing_root(catalog: "Catalog", stream: str, zone: LandingZone) -> None:
    """Check that a stream's landing folder has not changed; record it the first time."""
    ledger = catalog.load_table(stream_tables(stream).ledger)
    recorded = ledger.properties.get(LANDING_ROOT)
    if recorded is None:
        record_landing_root(catalog, stream, zone)
    elif recorded != zone.root:
        raise UsageError(
            f"The landing zone of {stream} was {recorded}, but LAKE_LANDING is now {zone.root}.",
            f"Change LAKE_LANDING back. If the same files were moved or mounted elsewhere, run "
            f"`lakeproof landing move {stream}`.",
        )


def record_landing_root(catalog: "Catalog", stream: str, zone: LandingZone) -> None:
    """Record that a stream's files land in `zone`."""
    with catalog.load_table(stream_tables(stream).ledger).transaction() as transaction:
        transaction.set_properties({LANDING_ROOT: zone.root})


def check_same_files(catalog: "Catalog", stream: str, zone: LandingZone) -> tuple[int, int]:
    """Look for files of the ledger in a landing zone; return how many were looked for and found."""
    ledger = catalog.load_table(stream_tables(stream).ledger)
    rows = ledger.scan(selected_fields=("source", "size"), limit=_LOOKED_AT).to_arrow().to_pylist()
    found = sum((seen := zone.stat(row["source"])) is not None and seen.size == row["size"] for row in rows)
    if rows and not found:
        raise UsageError(
            f"None of the {len(rows):,} files that {stream} has read is in {zone.root}.",
            "Set LAKE_LANDING to the folder where they are now. For other files, use another stream or lake.",
        )
    return len(rows), found
