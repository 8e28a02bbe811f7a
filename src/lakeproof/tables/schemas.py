"""Columns and partitions of the tables, derived from contracts."""

from typing import TYPE_CHECKING

from lakeproof.contracts import (
    Contract,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
    Type,
)
from lakeproof.gold.model import WINDOW_END, WINDOW_START, Product
from lakeproof.gold.samples import DETECTED_AT, DETECTOR, MAXIMUM, MINIMUM, ROLES, Samples
from lakeproof.tables.columns import evolve, lacking, renaming
from lakeproof.tables.names import (
    ATTEMPT,
    CONTENT_HASH,
    CONTRACT_VERSION,
    DECIDED_AT,
    HASH_KIND,
    HEADERS,
    HORIZON,
    INGESTED_AT,
    KEY,
    LANDED_AT,
    MICRO_BATCH_ID,
    NEXT_MICRO_BATCH,
    POSITION,
    PRODUCT,
    RAW,
    REASONS,
    RESCUED,
    SCHEMA_CHANGES,
    SOURCE,
    UPDATED_AT,
    WINNER_POSITION,
    WINNER_SOURCE,
    SamplesTables,
    SilverTables,
    stream_tables,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import IcebergType, NestedField

_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # Every commit rewrites the metadata file: keep few old ones.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
# Look-ups of sources prune files by bounds, which Iceberg truncates to 16 characters: a whole month would be equal.
_LEDGER_PROPERTIES = {"write.metadata.metrics.column.source": "full"}

CONTENT_HASH_KIND = "netstrings-blake2b-128"
"""Version of the row hashes in silver. Hashes of different versions cannot be compared."""

# The next layer reads by micro-batch. Iceberg keeps bounds of 100 columns only, and a contract may have as many.
_NUMBERED_PROPERTIES = {f"write.metadata.metrics.column.{MICRO_BATCH_ID}": "full"}
_KEPT_PROPERTIES = _NUMBERED_PROPERTIES | {HASH_KIND: CONTENT_HASH_KIND}

GOLD_PROPERTIES = _PROPERTIES | {"format-version": "3"}
"""Properties of a gold table. Format version 3 has deletion vectors, which upserts use."""


def ensure_tables(catalog: "Catalog", contract: Contract) -> None:
    """Create missing namespaces and tables of a stream, and add columns that older versions lack.

    Fields of the contract are not added to bronze: they change when a contract is applied.
    """
    tables = stream_tables(contract.stream)
    for name, schema, day_of, properties in (
        (
            tables.bronze,
            bronze_schema(contract),
            contract.event_time,
            _NUMBERED_PROPERTIES | renaming(contract.renamed),
        ),
        (tables.dead_letters, dead_letter_schema(), INGESTED_AT, {}),
        (tables.ledger, ledger_schema(), INGESTED_AT, _LEDGER_PROPERTIES | {NEXT_MICRO_BATCH: "0"}),
    ):
        if _ensure_table(catalog, name, schema, day_of, properties) or name == tables.bronze:
            continue
        table = catalog.load_table(name)
        evolve(table, schema)
        if name == tables.ledger:
            _ensure_numbered(table)


def ensure_silver_tables(catalog: "Catalog", contract: Contract, tables: SilverTables) -> None:
    """Create missing silver tables of a stream, and add the contract's new fields to existing ones."""
    from pyiceberg.types import BinaryType, LongType, StringType, TimestamptzType

    content = (CONTENT_HASH, BinaryType(), "BLAKE2b (128 bits) of the contract's fields that are not null")
    winner = [
        (WINNER_SOURCE, StringType(), "source of the row that was kept for this key"),
        (WINNER_POSITION, LongType(), "position of the row that was kept for this key"),
    ]
    horizon = (HORIZON, TimestamptzType(), "event times before this one could no longer be decided")
    for name, schema, day_of, properties in (
        (tables.kept, _schema([*_bronze_columns(contract), content]), contract.event_time, _KEPT_PROPERTIES),
        (tables.conflicts, _schema([*_bronze_columns(contract), *winner]), contract.event_time, {}),
        (tables.late, _schema([*_bronze_columns(contract), horizon]), contract.event_time, {}),
        (tables.ledger, silver_ledger_schema(), DECIDED_AT, _LEDGER_PROPERTIES),
    ):
        of_fields = {} if name == tables.ledger else contract.renamed
        if not _ensure_table(catalog, name, schema, day_of, properties | renaming(of_fields)):
            evolve(catalog.load_table(name), schema, of_fields)


def ensure_message_columns(catalog: "Catalog", stream: str) -> None:
    """Add the columns for key and headers of messages to the tables of a stream."""
    from pyiceberg.types import BinaryType, NestedField, StringType, StructType
    from pyiceberg.types import ListType as IcebergList

    header = StructType(
        NestedField(0, "key", StringType(), required=False), NestedField(0, "value", BinaryType(), required=False)
    )
    schema = _schema(
        [
            (KEY, BinaryType(), "key of its Kafka message"),
            (HEADERS, IcebergList(0, header, element_required=False), "headers of its Kafka message"),
        ]
    )
    names = stream_tables(stream)
    for name in (names.bronze, names.dead_letters):
        table = catalog.load_table(name)
        if lacking(table.schema(), schema):
            evolve(table, schema)


def _ensure_table(catalog: "Catalog", name: str, schema: "Schema", day_of: str, properties: dict[str, str]) -> bool:
    """Create a table by the day of a column, unless it exists; return whether it was missing."""
    if catalog.table_exists(name):
        return False
    ensure_namespace(catalog, name.split(".")[0])
    catalog.create_table_if_not_exists(
        name, schema, partition_spec=_by_day(schema, day_of), properties=_PROPERTIES | properties
    )
    return True


def _ensure_numbered(ledger: "Table") -> None:
    """Let micro-batch numbers of an old ledger grow: in earlier versions, each checkpoint began at 0."""
    import pyarrow.compute as pc

    if NEXT_MICRO_BATCH in ledger.properties:
        return
    numbers = ledger.scan(selected_fields=("micro_batch_id",)).to_arrow()["micro_batch_id"]
    newest = pc.max(numbers).as_py() if len(numbers) else None
    with ledger.transaction() as transaction:
        transaction.set_properties({NEXT_MICRO_BATCH: str(0 if newest is None else newest + 1)})


def ensure_schema_changes(catalog: "Catalog") -> "Table":
    """Return ``ops.schema_changes``, created if missing."""
    ensure_namespace(catalog, SCHEMA_CHANGES.split(".")[0])
    table = catalog.create_table_if_not_exists(SCHEMA_CHANGES, schema_changes_schema(), properties=_PROPERTIES)
    evolve(table, schema_changes_schema())
    return table


def ensure_namespace(catalog: "Catalog", name: str) -> None:
    """Create a namespace unless it exists."""
    try:
        catalog.create_namespace_if_not_exists(name)
    except Exception:  # catalogs raise different errors if another process creates it concurrently
        if (name,) not in catalog.list_namespaces():
            raise


def bronze_schema(contract: Contract) -> "Schema":
    """Iceberg schema of ``bronze.<stream>``: columns of the contract, rescued values, provenance."""
    return _schema(_bronze_columns(contract))


def _bronze_columns(contract: Contract) -> list[tuple[str, "IcebergType", str]]:
    from pyiceberg.types import LongType, StringType, TimestamptzType
    from pyiceberg.types import MapType as IcebergMap

    rescued = IcebergMap(0, StringType(), 0, StringType(), value_required=False)
    return (
        [(field.name, _iceberg_type(field.type), _comment(field)) for field in contract]
        + [(RESCUED, rescued, "what did not fit: JSON path to the JSON text that landed")]
        * (contract.drift is DriftPolicy.RESCUE)
        + [
            (SOURCE, StringType(), "path of the landed file below the landing folder, or topic/partition/offset"),
            (POSITION, LongType(), "index of the record in its batch"),
            (MICRO_BATCH_ID, LongType(), "micro-batch that appended it"),
            (LANDED_AT, TimestamptzType(), "when its batch landed"),
            (INGESTED_AT, TimestamptzType(), "when the micro-batch was judged"),
            (CONTRACT_VERSION, StringType(), "contract version that judged it"),
        ]
    )


def dead_letter_schema() -> "Schema":
    """Iceberg schema of ``dead_letters.<stream>``."""
    from pyiceberg.types import BinaryType, IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType
    from pyiceberg.types import ListType as IcebergList

    reason = StructType(
        NestedField(0, "code", StringType(), required=False),
        NestedField(0, "path", StringType(), required=False),
        NestedField(0, "detail", StringType(), required=False),
    )
    return _schema(
        [
            (REASONS, IcebergList(0, reason, element_required=False), "every reason: code, JSON path, detail"),
            (RAW, BinaryType(), "the unit's bytes as landed"),
            (SOURCE, StringType(), "path of the landed file below the landing folder, or topic/partition/offset"),
            (POSITION, LongType(), "index of the record in its batch; 0 for a whole batch"),
            (MICRO_BATCH_ID, LongType(), "micro-batch that appended it"),
            (LANDED_AT, TimestamptzType(), "when its batch landed"),
            (INGESTED_AT, TimestamptzType(), "when the micro-batch was judged"),
            (CONTRACT_VERSION, StringType(), "contract version that judged it"),
            (ATTEMPT, IntegerType(), "1 as landed; more for a replay"),
        ]
    )


def ledger_schema() -> "Schema":
    """Iceberg schema of ``ledger.<stream>``."""
    from pyiceberg.types import LongType, StringType, TimestamptzType
    from pyiceberg.types import MapType as IcebergMap

    counts = IcebergMap(0, StringType(), 0, LongType(), value_required=False)
    return _schema(
        [
            ("source", StringType(), "path of the landed file below the landing folder, or topic/partition/offset"),
            ("size", LongType(), "bytes of the file, or offsets of the range"),
            (
                "etag",
                StringType(),
                "the storage's tag of its content when it was read, or the first offset behind the range",
            ),
            ("content_hash", StringType(), "BLAKE2b (128 bits) of its bytes as they landed"),
            ("micro_batch_id", LongType(), "micro-batch that took it"),
            ("checkpoint_id", StringType(), "checkpoint of the query that took it"),
            ("units", LongType(), "units that came in"),
            ("bronze", LongType(), "units that went to bronze"),
            ("dead_letters", counts, "dead letters by set of reasons, joined by +"),
            ("rescued", counts, "values that were rescued, by set of reasons, joined by +"),
            ("discarded", counts, "values that were discarded, by set of reasons, joined by +"),
            ("landed_at", TimestamptzType(), "when it landed"),
            (INGESTED_AT, TimestamptzType(), "when the micro-batch was judged"),
            (CONTRACT_VERSION, StringType(), "contract version that judged it"),
        ]
    )


def silver_ledger_schema() -> "Schema":
    """Iceberg schema of ``ledger.<stream>_silver``."""
    from pyiceberg.types import LongType, StringType, TimestamptzType

    return _schema(
        [
            ("source", StringType(), "path of the landed file below the landing folder, or topic/partition/offset"),
            ("micro_batch_id", LongType(), "micro-batch of bronze that it came with"),
            ("bronze", LongType(), "rows in bronze: the sum of the others"),
            ("kept", LongType(), "rows that were the first with their key"),
            ("duplicates", LongType(), "rows whose key was seen with the same content"),
            ("conflicts", LongType(), "rows whose key was seen with other content"),
            ("late", LongType(), "rows that came after the horizon had passed their event time"),
            (DECIDED_AT, TimestamptzType(), "when that was decided"),
            (CONTRACT_VERSION, StringType(), "contract version that decided it"),
        ]
    )


def gold_schema(product: Product) -> "Schema":
    """Iceberg schema of ``gold.<product>``."""
    from pyiceberg.types import TimestamptzType

    return _schema(
        [
            (WINDOW_START, TimestamptzType(), "start of the window, which is in it"),
            (WINDOW_END, TimestamptzType(), "end of the window, which is not in it"),
            *((key.name, _iceberg_type(key.type), key.description) for key in product.keys),
            *((measure.name, _iceberg_type(measure.type), "") for measure in product.measures),
            (UPDATED_AT, TimestamptzType(), "when the row was computed"),
        ]
    )


def ensure_samples_tables(catalog: "Catalog", samples: Samples, names: SamplesTables) -> None:
    """Create missing tables of a product of samples. They are append-only."""
    properties = {PRODUCT: samples.digest, "comment": samples.description}
    _ensure_table(catalog, names.anomalies, anomalies_schema(samples), samples.event_time.name, properties)
    _ensure_table(catalog, names.samples, samples_schema(samples), WINDOW_START, properties)


def samples_schema(samples: Samples) -> "Schema":
    """Iceberg schema of the table of samples."""
    from pyiceberg.types import ListType as IcebergList
    from pyiceberg.types import StringType, TimestamptzType

    roles = IcebergList(0, StringType(), element_required=False)
    return _schema(
        [
            (WINDOW_START, TimestamptzType(), "start of the window, which is in it"),
            (WINDOW_END, TimestamptzType(), "end of the window, which is not in it"),
            *_reading_columns(samples),
            (ROLES, roles, "why the reading is a sample: first, middle, last, anomaly"),
            (UPDATED_AT, TimestamptzType(), "when the row was computed"),
        ]
    )


def anomalies_schema(samples: Samples) -> "Schema":
    """Iceberg schema of the table of anomalies."""
    from pyiceberg.types import DoubleType, StringType, TimestamptzType

    return _schema(
        [
            *_reading_columns(samples),
            (DETECTOR, StringType(), "what noticed it, like out_of_range"),
            (DETECTED_AT, TimestamptzType(), "event time at which it was an anomaly"),
            (MINIMUM, DoubleType(), "smallest value that was expected; null for any"),
            (MAXIMUM, DoubleType(), "greatest value that was expected; null for any"),
            (UPDATED_AT, TimestamptzType(), "when the row was computed"),
        ]
    )


def _reading_columns(samples: Samples) -> list[tuple[str, "IcebergType", str]]:
    fields = (samples.device, samples.event_time, samples.value)
    return [(field.name, _iceberg_type(field.type), field.description) for field in fields]


def schema_changes_schema() -> "Schema":
    """Iceberg schema of ``ops.schema_changes``."""
    from pyiceberg.types import ListType as IcebergList
    from pyiceberg.types import LongType, StringType, TimestamptzType

    return _schema(
        [
            ("stream", StringType(), "name of the stream"),
            ("number", LongType(), "1 for the contract that made the stream's tables, 2 for the next, and so on"),
            ("from_version", StringType(), "contract version before; null for the first"),
            ("to_version", StringType(), "contract version since then"),
            ("from_digest", StringType(), "SHA-256 of the contract before; null for the first"),
            ("to_digest", StringType(), "SHA-256 of the contract"),
            ("changes", IcebergList(0, StringType(), element_required=False), "what changed, field by field"),
            ("contract", StringType(), "the whole text of the contract"),
            ("applied_at", TimestamptzType(), "when it was applied"),
        ]
    )


def _schema(columns: list[tuple[str, "IcebergType", str]]) -> "Schema":
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.types import NestedField

    return assign_fresh_schema_ids(
        Schema(*(NestedField(0, name, kind, required=False, doc=doc or None) for name, kind, doc in columns))
    )


def _by_day(schema: "Schema", column: str) -> "PartitionSpec":
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform

    return PartitionSpec(PartitionField(schema.find_field(column).field_id, 1000, DayTransform(), f"{column}_day"))


def _comment(field: Field) -> str:
    state = "Dropped: null in new rows." if field.dropped else "Deprecated." if field.deprecated else ""
    return f"{state} {field.description}".strip()


def _iceberg_type(kind: Type) -> "IcebergType":
    from pyiceberg import types as iceberg

    match kind:
        case DecimalType():
            return iceberg.DecimalType(kind.precision, kind.scale)
        case MapType():
            return iceberg.MapType(0, iceberg.StringType(), 0, _iceberg_type(kind.value), value_required=False)
        case ListType():
            return iceberg.ListType(0, _iceberg_type(kind.item), element_required=False)
        case ObjectType():
            return iceberg.StructType(*(_nested(field) for field in kind.fields))
        case PrimitiveType():
            return {
                PrimitiveType.STRING: iceberg.StringType(),
                PrimitiveType.BOOLEAN: iceberg.BooleanType(),
                PrimitiveType.INT: iceberg.IntegerType(),
                PrimitiveType.LONG: iceberg.LongType(),
                PrimitiveType.FLOAT: iceberg.FloatType(),
                PrimitiveType.DOUBLE: iceberg.DoubleType(),
                PrimitiveType.TIMESTAMP: iceberg.TimestamptzType(),
                PrimitiveType.DATE: iceberg.DateType(),
                PrimitiveType.SCALAR: iceberg.StringType(),
            }[kind]


def _nested(field: Field) -> "NestedField":
    from pyiceberg.types import NestedField

    return NestedField(0, field.name, _iceberg_type(field.type), required=False, doc=_comment(field) or None)
