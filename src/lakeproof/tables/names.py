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
KEY = "_key"
HEADERS = "_headers"
REASONS = "reasons"
RAW = "raw"

DECIDED_AT = "_decided_at"
CONTENT_HASH = "_content_hash"
WINNER_SOURCE = "_winner_source"
WINNER_POSITION = "_winner_position"
HORIZON = "_horizon"
UPDATED_AT = "_updated_at"

NEXT_MICRO_BATCH = "lakeproof.next-micro-batch"
"""Property of a ledger: the least number that its next micro-batch may have; those of before are smaller."""
MARKER = "lakeproof.marker."
"""What the name of the property begins with that holds a query's newest marker; the name of the query follows."""
PRODUCT = "lakeproof.product"
"""Property of a table of gold: the digest of the data product that it is filled for."""
REBUILDING = "__rebuild_"
"""What the suffix of a table begins with that will replace another one."""
LANDING_ROOT = "lakeproof.landing.zone-root"
"""Property of a ledger: URI of the folder that its sources are below."""
KAFKA_TOPIC = "lakeproof.kafka.topic"
"""Property of a ledger: the topic that the stream comes from, and where in it the stream begins."""
SCHEMA_IDS = "lakeproof.schema-ids"
"""Property of a ledger: the ids of contracts in the schema registry, by digest, as JSON."""
RENAMED = "lakeproof.renamed-columns"
"""Property of a table: the columns that were renamed as JSON, each former name with the current one."""
HASH_KIND = "lakeproof.content-hash"
"""Property of a silver table: how the hashes of its rows were computed."""
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


@dataclass(frozen=True)
class SilverTables:
    """Names of a stream's silver tables.

    Each row of bronze is in one of the first three, or is a duplicate, which only the ledger counts.
    """

    kept: str
    """One row for each primary key."""
    conflicts: str
    """Rows whose key was seen with other content."""
    late: str
    """Rows that came after the horizon had passed their event time."""
    ledger: str
    """A row is a source in a micro-batch of bronze: how many of its rows became what."""


def silver_query(stream: str) -> str:
    """Name of the query that fills a stream's silver tables, and so of its markers in them."""
    return f"silver-{stream}"


def silver_tables(stream: str, suffix: str = "") -> SilverTables:
    """Names of the silver tables of ``stream``; with a suffix, of those that will replace them."""
    return SilverTables(
        kept=f"silver.{stream}{suffix}",
        conflicts=f"silver.{stream}_conflicts{suffix}",
        late=f"silver.{stream}_late{suffix}",
        ledger=f"ledger.{stream}_silver{suffix}",
    )


def gold_table(product: str, suffix: str = "") -> str:
    """Name of the table of a data product; with a suffix, of the one that will replace it."""
    return f"gold.{product}{suffix}"


@dataclass(frozen=True)
class SamplesTables:
    """Names of the tables of a product of samples."""

    anomalies: str
    samples: str


def samples_tables(product: str, anomalies: str, suffix: str = "") -> SamplesTables:
    """Names of the tables of a product of samples; with a suffix, of those that will replace them."""
    return SamplesTables(gold_table(anomalies, suffix), gold_table(product, suffix))


def gold_query(product: str) -> str:
    """Name of the query that fills it."""
    return f"gold-{product}"
