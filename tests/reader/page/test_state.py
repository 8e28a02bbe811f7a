"""What waits in a landing zone, by the ledger, the landing log and a listing."""

from datetime import UTC, datetime

import duckdb

from lakeproof.landing.selection import Selection
from lakeproof.landing.zone import LandingZone
from lakeproof.settings import settings_of
from lakeproof.storage import StoredFile
from reader.connect import Session
from reader.page.ledgers import LEDGER
from reader.page.state import Listing, waiting

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_found_file_waits_though_globs_exclude_it_now() -> None:
    """Files that were found are read, whatever the globs are now."""
    names = ("read.json", "found.json", "new.json")
    zone = LandingZone("file:///landing", settings_of({}).s3, Selection(exclude=("*.json",)))
    files = {name: StoredFile(f"file:///landing/{name}", 1, "tag", NOON) for name in names}
    log = [(1, "read.json", NOON), (2, "found.json", NOON), (3, "deleted.json", NOON)]
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"CREATE TABLE {LEDGER} AS SELECT 'read.json' AS source, NULL::BIGINT AS replay")
        found = waiting(Session(connection, []), Listing(zone, True, files), "", log)
    assert (found.count, found.gone, found.removed) == (2, ["deleted.json"], 0)
