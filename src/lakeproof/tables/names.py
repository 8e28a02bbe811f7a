"""Names of the tables, of the columns that every table of a kind has, and of their properties."""

from dataclasses import dataclass

RESCUED = "_rescued"
SOURCE = "_source"
POSITION = "_position"
MICRO_BATCH_ID = "_micro_batch_id"
LANDED_AT = "_landed_at"
INGESTED_AT = "_ingested_at"
CONTRACT_VERSION = "_contract_version"
ATTEMPT = "_attempt"
REASONS = "reasons"
RAW = "raw"

MARKER = "lakeproof.marker."
"""What the name of the property begins with that holds a query's newest marker; the name of the query follows."""
LANDING_ROOT = "lakeproof.landing.zone-root"
"""Property of a ledger: URI of the folder that its sources are below."""
SCHEMA_CHANGES = "ops.schema_changes"
"""A row is a contract that was applied to a stream's tables."""


@dataclass(frozen=True)
class StreamTables:
    """Names of a stream's tables within the catalog."""

    bronze: str
    dead_letters: str
    ledger: str
    """A row is a source in a micro-batch: how many units came in, and where each went."""


def stream_tables(stream: str) -> StreamTables:
    """Names of the tables of ``stream``."""
    return StreamTables(bronze=f"bronze.{stream}", dead_letters=f"dead_letters.{stream}", ledger=f"ledger.{stream}")
