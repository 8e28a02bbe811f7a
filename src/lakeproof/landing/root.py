"""Record the landing zone of a stream in its ledger, so that a change is noticed."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakeproof.addresses import encoded
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.landing.zone import GivenBy, LandingZone, landing_zone, zone_at
from lakeproof.settings import Settings
from lakeproof.storage.local import local_path
from lakeproof.tables.names import ARCHIVES, LANDING_ROOT, LANDING_SOURCE, LANDING_START, stream_tables
from lakeproof.topics import starting_files

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_LOOKED_AT = 1000
_ATTEMPTS = 10
_BACK = {
    GivenBy.SETTING: "Change LAKE_LANDING back.",
    GivenBy.CONTRACT: "Change the location in the contract back.",
    GivenBy.OPTION: "Leave out --source.",
}


def open_landing_zone(catalog: "Catalog", settings: Settings, stream: str) -> LandingZone:
    """Return the landing zone of a stream that runs. The first run records the zone, and the time where it begins."""
    ledger = catalog.load_table(stream_tables(stream).ledger).properties
    zone = landing_zone(settings, stream, ledger)
    recorded = ledger.get(LANDING_ROOT)
    if recorded is None:
        _check_own(settings, stream, zone)
        begin = _begin(settings, zone)
        record_landing_root(catalog, stream, zone, begin)
        return landing_zone(settings, stream, ledger | ({LANDING_START: begin.isoformat()} if begin else {}))
    if recorded != zone.root:
        raise UsageError(*moved(stream, recorded, zone))
    if zone.given_by is GivenBy.OPTION and LANDING_SOURCE not in ledger:
        record_landing_root(catalog, stream, zone)
    return zone


def moved(stream: str, recorded: str, zone: LandingZone) -> tuple[str, str]:
    """Return message and hint for a stream whose files were read from another zone."""
    option = f" --source {zone.root}" if zone.given_by is GivenBy.OPTION else ""
    return (
        f"The landing zone of {stream} was {recorded}, but {zone.given_by} is now {zone.root}.",
        f"{_BACK[zone.given_by]} If the same files were moved or mounted elsewhere, run `lakeproof landing move "
        f"{stream}{option}`. Read other files as a stream of another name.",
    )


def record_landing_root(catalog: "Catalog", stream: str, zone: LandingZone, begin: datetime | None = None) -> None:
    """Record that a stream's files land in `zone`, and that files from before `begin` are not read."""
    properties = {LANDING_ROOT: zone.root}
    if zone.given_by is GivenBy.OPTION:
        properties[LANDING_SOURCE] = zone.root
    if begin:
        properties[LANDING_START] = begin.isoformat()
    with catalog.load_table(stream_tables(stream).ledger).transaction() as transaction:
        transaction.set_properties(properties)


def archives_of(ledger: Mapping[str, str]) -> list[str]:
    """Return the addresses to which files of a stream were ever copied by retention."""
    found: list[str] = json.loads(ledger.get(ARCHIVES, "[]"))
    return found


def record_archive(ledger: "Table", root: str) -> None:
    """Record in a ledger that retention copies files to an address, where an erasure will search them."""
    from pyiceberg.exceptions import CommitFailedException

    for _ in range(_ATTEMPTS):
        known = archives_of(ledger.properties)
        if root in known:
            return
        try:
            with ledger.transaction() as transaction:
                transaction.set_properties({ARCHIVES: json.dumps([*known, root])})
        except CommitFailedException:  # a consumer that runs beside
            ledger.refresh()
    raise UnavailableError(
        f"Cannot record the archive of {ledger.name()[-1]}: other writers keep changing its ledger.", "Run it again."
    )


def check_same_files(
    catalog: "Catalog", stream: str, zone: LandingZone, *, all_removed: bool = False
) -> tuple[int, int]:
    """Look for the newest files of the ledger in a landing zone; return how many were looked for and found.

    With `all_removed`, there may be none of them, but the folder must exist.
    """
    if all_removed and not zone.is_there():
        raise UsageError(f"The folder {local_path(zone.root)} does not exist.", "Create it, or mount its disk.")
    rows = _newest(catalog.load_table(stream_tables(stream).ledger))
    found = sum((seen := zone.stat(row["source"])) is not None and seen.size == row["size"] for row in rows)
    if rows and not found and not all_removed:
        raise UsageError(
            f"None of the {len(rows):,} files that {stream} has read last is in {zone.root}.",
            "Set LAKE_LANDING to the folder where they are now. If retention has removed all that were read, "
            "add --all-removed. For other files, use another stream or lake.",
        )
    return len(rows), found


def _newest(ledger: "Table") -> list[dict[str, Any]]:
    """Return source and size of the files of a ledger that landed last: retention has removed others first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns, found = ("source", "size", "landed_at"), None
    for batch in ledger.scan(selected_fields=columns).to_arrow_batch_reader():
        new = pa.Table.from_batches([batch])
        rows = pa.concat_tables([found, new]) if found else new
        found = rows.take(pc.select_k_unstable(rows, _LOOKED_AT, [("landed_at", "descending")]))
    return found.to_pylist() if found else []


def _begin(settings: Settings, zone: LandingZone) -> datetime | None:
    """Return the time from which files are read, in whole seconds like the times of S3; None for all files."""
    asked = starting_files(settings.landing.starting_files)
    if asked == "earliest":
        return None
    begin = asked if isinstance(asked, datetime) else zone.storage.now()
    return begin.replace(microsecond=0)


def _check_own(settings: Settings, stream: str, zone: LandingZone) -> None:
    """Refuse a stream's own address that cannot be listed, or overlaps a place where the lake writes."""
    if not zone.is_own:
        return
    if not zone.is_there():
        raise UsageError(f"The folder {local_path(zone.root)} does not exist.", f"Correct {zone.given_by}.")
    zone.storage.now()
    places = {
        "LAKE_WAREHOUSE": settings.catalog.warehouse_uri,
        "LAKE_CHECKPOINTS": settings.state.checkpoints,
        "LAKE_PUBLISHED": settings.sinks.files,
    }
    for name, uri in places.items():
        place = zone_at(encoded(uri), settings.s3)
        if zone.overlaps(place):
            raise UsageError(
                f"The landing zone of {stream}, {zone.root}, and {name}, {place.root}, overlap: what the lake writes "
                "would land.",
                "Use another bucket or prefix for one of them.",
            )
