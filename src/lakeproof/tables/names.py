"""Names of tables, of their common columns, and of table properties."""

from dataclasses import dataclass
from enum import StrEnum

NAMESPACES = ("bronze", "dead_letters", "ledger", "silver", "gold", "ops")

RESCUED = "_rescued"
SOURCE = "_source"
POSITION = "_position"
MICRO_BATCH_ID = "_micro_batch_id"
LANDED_AT = "_landed_at"
INGESTED_AT = "_ingested_at"
CONTRACT_VERSION = "_contract_version"
ATTEMPT = "_attempt"
KEY = "_key"
HEADERS = "_headers"
REASONS = "reasons"
RAW = "raw"

LETTER = "_letter"
LETTER_REASONS = "letter_reasons"
OUTCOME = "outcome"
REPLAY = "replay"
CLOSED = "closed"
TRANSFORM = "transform"
TRANSFORM_DIGEST = "transform_digest"
SALVAGED = "salvaged"

DECIDED_AT = "_decided_at"
CONTENT_HASH = "_content_hash"
WINNER_SOURCE = "_winner_source"
WINNER_POSITION = "_winner_position"
HORIZON = "_horizon"
UPDATED_AT = "_updated_at"

REMOVED_AT = "removed_at"
REQUEST = "request"

NEXT_MICRO_BATCH = "lakeproof.next-micro-batch"  # property of a ledger: lowest number of its next micro-batch
MARKER = "lakeproof.marker."  # prefix of the property with the newest marker of a query, followed by the query's name
PRODUCT = "lakeproof.product"  # property of a gold table: digest of its data product
REBUILDING = "__rebuild_"  # prefix of the suffix of tables that are being rebuilt
REPLACED = "lakeproof.replaced-by"  # property of a table that a rebuild replaced: name of the new one
LANDING_ROOT = "lakeproof.landing.zone-root"  # property of a ledger: URI of the landing folder of its sources
LANDING_SOURCE = "lakeproof.landing.source"  # property of a ledger: the address of `consumer run --source`
LANDING_START = "lakeproof.landing.start"  # property of a ledger: older files are not read; ISO 8601
ARCHIVES = "lakeproof.landing.archives"  # property of a ledger: JSON with the addresses that retention copies files to
KAFKA_TOPIC = "lakeproof.kafka.topic"  # property of a ledger: topic of the stream, and the offsets where it begins
SCHEMA_IDS = "lakeproof.schema-ids"
"""Property of a ledger: JSON with the schema registry's ids of contracts, by digest."""
RENAMED = "lakeproof.renamed-columns"
"""Property of a table: JSON with the current names of renamed columns, by former name."""
HASH_KIND = "lakeproof.content-hash"  # property of a silver table: version of its content hashes
ROW_HASH = "lakeproof.row-hash"  # property of a ledger: version of the hashes of rows in it
EXPIRED = "lakeproof.expired"  # property of a table: JSON with the account of the rows that retention has removed
HASH_OF = "_hash"  # suffix of a ledger's columns with the hash of the rows that went to a table
SCHEMA_CHANGES = "ops.schema_changes"  # one row per contract that was applied to the tables of a stream


class ReplayOutcome(StrEnum):
    """Outcome of an attempt to replay a dead letter."""

    CLOSED = "closed"  # its records are in bronze
    FAILED = "failed"  # it is still a dead letter
    PARKED = "parked"  # it failed the maximum number of times, and is replayed only with `--parked`


class Removal(StrEnum):
    """Kind of a row in the account of removals."""

    ERASED = "erased"  # rows were removed, or will be, on request
    REBUILT = "rebuilt"  # the rows of an erasure are gone, and the layers after bronze were filled again
    COMPLETE = "complete"  # the request was carried out, and a search found nothing more to remove


@dataclass(frozen=True)
class StreamTables:
    """Names of a stream's tables within the catalog."""

    bronze: str
    dead_letters: str
    ledger: str  # one row per source and micro-batch, with counts of units by outcome
    attempts: str  # one row per attempt to replay a dead letter; created by the first replay
    removals: str  # one row per row that an erasure removed from the other tables; created by the first one


def stream_tables(stream: str) -> StreamTables:
    """Names of the tables of ``stream``."""
    return StreamTables(
        bronze=f"bronze.{stream}",
        dead_letters=f"dead_letters.{stream}",
        ledger=f"ledger.{stream}",
        attempts=f"dead_letters.{stream}_attempts",
        removals=f"ledger.{stream}_removals",
    )


@dataclass(frozen=True)
class SilverTables:
    """Names of a stream's silver tables.

    Each row of bronze is in one of the first three tables, or is a duplicate, which is only counted in the ledger.
    """

    kept: str  # one row per primary key
    conflicts: str  # rows with a known key but different content
    late: str  # rows with an event time before the horizon
    ledger: str  # one row per source and bronze micro-batch, with counts of rows by verdict


def silver_query(stream: str) -> str:
    """Name of the query that fills the silver tables of a stream; also names its markers."""
    return f"silver-{stream}"


def silver_tables(stream: str, suffix: str = "") -> SilverTables:
    """Names of the silver tables of ``stream``; a suffix is for a rebuild."""
    return SilverTables(
        kept=f"silver.{stream}{suffix}",
        conflicts=f"silver.{stream}_conflicts{suffix}",
        late=f"silver.{stream}_late{suffix}",
        ledger=f"ledger.{stream}_silver{suffix}",
    )


def gold_table(product: str, suffix: str = "") -> str:
    """Name of the table of a data product; a suffix is for a rebuild."""
    return f"gold.{product}{suffix}"


@dataclass(frozen=True)
class SamplesTables:
    """Names of the tables of a product of samples."""

    anomalies: str
    samples: str


def samples_tables(product: str, anomalies: str, suffix: str = "") -> SamplesTables:
    """Names of the tables of a product of samples; a suffix is for a rebuild."""
    return SamplesTables(gold_table(anomalies, suffix), gold_table(product, suffix))


def gold_query(product: str) -> str:
    """Name of the query that fills a gold table."""
    return f"gold-{product}"
