"""Columns and partitions of the tables, derived from contracts."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

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
from lakeproof.tables.evolution import evolve, lacking, renaming
from lakeproof.tables.names import (
    ATTEMPT,
    CLOSED,
    CONTENT_HASH,
    CONTRACT_VERSION,
    DECIDED_AT,
    HASH_KIND,
    HASH_OF,
    HEADERS,
    HORIZON,
    INGESTED_AT,
    KEY,
    LANDED_AT,
    LETTER,
    LETTER_REASONS,
    MICRO_BATCH_ID,
    NEXT_MICRO_BATCH,
    OUTCOME,
    POSITION,
    PRODUCT,
    RAW,
    REASONS,
    REMOVED_AT,
    REPLAY,
    REQUEST,
    RESCUED,
    ROW_HASH,
    SALVAGED,
    SCHEMA_CHANGES,
    SOURCE,
    TRANSFORM,
    TRANSFORM_DIGEST,
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

_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # Every commit rewrites the metadata file: keep few old ones.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
CONTENT_HASH_KIND = "netstrings-blake2b-128"
"""Version of the content hashes in silver. Hashes of different versions cannot be compared."""
ROW_HASH_KIND = "netstrings-md5-64"
"""Version of the hashes of rows in the ledgers, see :mod:`consumer.row_hashes`."""

_ROW_HASH = {ROW_HASH: ROW_HASH_KIND}
# Look-ups of sources prune files by bounds, which Iceberg truncates to 16 characters: a whole month would be equal.
_LEDGER_PROPERTIES = _ROW_HASH | {"write.metadata.metrics.column.source": "full"}

# The next layer reads by micro-batch. Iceberg keeps bounds of 100 columns only, and a contract may have as many.
_NUMBERED_PROPERTIES = {f"write.metadata.metrics.column.{MICRO_BATCH_ID}": "full"}
_KEPT_PROPERTIES = _NUMBERED_PROPERTIES | {HASH_KIND: CONTENT_HASH_KIND}

GOLD_PROPERTIES = _PROPERTIES | {"format-version": "3"}
"""Properties of a gold table. Format version 3 has deletion vectors, which upserts use."""


IcebergType = str | dict[str, Any]
"""A type in the JSON format of Iceberg's specification. Ids are 0 until a schema is built from the type."""
Column = tuple[str, IcebergType, str]
"""Name, type and comment."""


def _map(value: IcebergType) -> IcebergType:
    return {"type": "map", "key-id": 0, "key": "string", "value-id": 0, "value": value, "value-required": False}


def _list(element: IcebergType) -> IcebergType:
    return {"type": "list", "element-id": 0, "element": element, "element-required": False}


def _struct(columns: Iterable[Column]) -> IcebergType:
    return {"type": "struct", "fields": [_field(*column) for column in columns]}


def _field(name: str, kind: IcebergType, comment: str) -> dict[str, Any]:
    return {"id": 0, "name": name, "type": kind, "required": False, "doc": comment or None}


def _provenance(position: str) -> list[Column]:
    return [
        (SOURCE, "string", _SOURCE),
        (POSITION, "long", position),
        (MICRO_BATCH_ID, "long", "micro-batch that appended it"),
        (LANDED_AT, "timestamptz", "when its batch landed"),
        (INGESTED_AT, "timestamptz", "when the micro-batch was judged"),
        (CONTRACT_VERSION, "string", "contract version that judged it"),
    ]


_SOURCE = "path of the landed file below the landing folder, or topic/partition/offset"
_RECORDED = ": the sum of theirs; null if an older version appended them"
_COUNTS = _map("long")
_REASON = _struct([("code", "string", ""), ("path", "string", ""), ("detail", "string", "")])
_HEADER = _struct([("key", "string", ""), ("value", "binary", "")])
_MESSAGE: list[Column] = [
    (KEY, "binary", "key of its Kafka message"),
    (HEADERS, _list(_HEADER), "headers of its Kafka message"),
]
_DEAD_LETTER: list[Column] = [
    (REASONS, _list(_REASON), "every reason: code, JSON path, detail"),
    (RAW, "binary", "the unit's bytes as landed"),
    *_provenance("index of the record in its batch; 0 for a whole batch"),
    (ATTEMPT, "int", "1 as landed; 2 for what a replay could not read of a batch"),
]
_ATTEMPTS: list[Column] = [
    (SOURCE, "string", _SOURCE),
    (POSITION, "long", "position of the dead letter"),
    (LETTER, "int", "_attempt of the dead letter"),
    (LETTER_REASONS, "string", "set of reasons of the dead letter, joined by +"),
    (ATTEMPT, "int", "2 for the first replay of the dead letter, 3 for the next, and so on"),
    (REPLAY, "long", "number of the replay: 1 for the first of the stream, 2 for the next, and so on"),
    (OUTCOME, "string", "closed, failed, or parked: failed as often as it may"),
    (REASONS, _list(_REASON), "every reason of the failure; null if it was closed"),
    (SALVAGED, "long", "of a batch: how many records were split from it; null for a record"),
    (TRANSFORM, "string", "name of the file with the transform; null without one"),
    (TRANSFORM_DIGEST, "string", "SHA-256 of the file with the transform"),
    (RAW, "binary", "the bytes that were judged, if a transform changed them, or if the dead letter has none"),
    (MICRO_BATCH_ID, "long", "micro-batch that made the attempt"),
    (INGESTED_AT, "timestamptz", "when the attempt was made"),
    (CONTRACT_VERSION, "string", "contract version that judged it"),
]
_LEDGER: list[Column] = [
    ("source", "string", _SOURCE),
    ("size", "long", "bytes of the file, or offsets of the range"),
    ("etag", "string", "the storage's tag of its content when it was read, or the first offset behind the range"),
    ("content_hash", "string", "BLAKE2b (128 bits) of its bytes as they landed"),
    ("micro_batch_id", "long", "micro-batch that took it"),
    ("checkpoint_id", "string", "checkpoint of the query that took it"),
    ("units", "long", "units that came in"),
    ("bronze", "long", "units that went to bronze"),
    ("dead_letters", _COUNTS, "dead letters by set of reasons, joined by +"),
    ("rescued", _COUNTS, "values that were rescued, by set of reasons, joined by +"),
    ("discarded", _COUNTS, "values that were discarded, by set of reasons, joined by +"),
    ("landed_at", "timestamptz", "when it landed"),
    (INGESTED_AT, "timestamptz", "when the micro-batch was judged"),
    (CONTRACT_VERSION, "string", "contract version that judged it"),
    (REPLAY, "long", "number of the replay that took its dead letters; null for what landed"),
    (CLOSED, _COUNTS, "of a replay: dead letters that were closed, by set of reasons, joined by +"),
    (f"bronze{HASH_OF}", "long", f"hash of the rows in bronze{_RECORDED}"),
    (f"dead_letters{HASH_OF}", "long", f"hash of the rows in the dead letters{_RECORDED}"),
]
_SILVER_LEDGER: list[Column] = [
    ("source", "string", _SOURCE),
    ("micro_batch_id", "long", "micro-batch of bronze that it came with"),
    ("bronze", "long", "rows in bronze: the sum of the others"),
    ("kept", "long", "rows that were the first with their key"),
    ("duplicates", "long", "rows whose key was seen with the same content"),
    ("conflicts", "long", "rows whose key was seen with other content"),
    ("late", "long", "rows that came after the horizon had passed their event time"),
    (DECIDED_AT, "timestamptz", "when that was decided"),
    (CONTRACT_VERSION, "string", "contract version that decided it"),
    *((f"{verdict}{HASH_OF}", "long", f"hash of these rows{_RECORDED}") for verdict in ("kept", "conflicts", "late")),
]
_CONTENT: Column = (CONTENT_HASH, "binary", "BLAKE2b (128 bits) of the contract's fields that are not null")
_WINNER: list[Column] = [
    (WINNER_SOURCE, "string", "source of the row that was kept for this key"),
    (WINNER_POSITION, "long", "position of the row that was kept for this key"),
]
_PASSED: Column = (HORIZON, "timestamptz", "event times before this one could no longer be decided")
_WINDOW: list[Column] = [
    (WINDOW_START, "timestamptz", "start of the window, which is in it"),
    (WINDOW_END, "timestamptz", "end of the window, which is not in it"),
]
_COMPUTED: Column = (UPDATED_AT, "timestamptz", "when the row was computed")
_ROLES: Column = (ROLES, _list("string"), "why the reading is a sample: first, middle, last, anomaly")
_DETECTION: list[Column] = [
    (DETECTOR, "string", "what noticed it, like out_of_range"),
    (DETECTED_AT, "timestamptz", "event time at which it was an anomaly"),
    (MINIMUM, "double", "smallest value that was expected; null for any"),
    (MAXIMUM, "double", "greatest value that was expected; null for any"),
]
_REMOVALS: list[Column] = [
    (REQUEST, "string", "id of the erasure"),
    ("what", "string", "erased: of a row; rebuilt or complete: how far an erasure is"),
    ("keyed_hash", "string", "HMAC-SHA256 of the condition of the erasure, with the operator's key"),
    ("table", "string", "name of the table that the rows were removed from"),
    ("source", "string", _SOURCE),
    (POSITION, "long", "position of the row"),
    (LETTER, "int", "_attempt of the dead letter"),
    (ATTEMPT, "int", "of an attempt: its number"),
    ("micro_batch_id", "long", "micro-batch that had appended the rows"),
    ("codes", "string", "of dead letters: set of reasons, joined by +"),
    ("rescued", "long", "of bronze: values of the rows that were rescued"),
    ("rows", "long", "how many rows were removed"),
    ("hash", "long", "hash of the rows: what the table has less than the ledger"),
    ("facts", "string", "of an attempt: what is kept of it, as JSON"),
    (REMOVED_AT, "timestamptz", "when this was written, which is before the rows are removed"),
]
_SCHEMA_CHANGES: list[Column] = [
    ("stream", "string", "name of the stream"),
    ("number", "long", "1 for the contract that made the stream's tables, 2 for the next, and so on"),
    ("from_version", "string", "contract version before; null for the first"),
    ("to_version", "string", "contract version since then"),
    ("from_digest", "string", "SHA-256 of the contract before; null for the first"),
    ("to_digest", "string", "SHA-256 of the contract"),
    ("changes", _list("string"), "what changed, field by field"),
    ("contract", "string", "the whole text of the contract"),
    ("applied_at", "timestamptz", "when it was applied"),
]


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
        (tables.ledger, _schema(_LEDGER), INGESTED_AT, _LEDGER_PROPERTIES | {NEXT_MICRO_BATCH: "0"}),
    ):
        if _ensure_table(catalog, name, schema, day_of, properties) or name == tables.bronze:
            continue
        table = catalog.load_table(name)
        evolve(table, schema, properties=_ROW_HASH if name == tables.ledger else {})
        if name == tables.ledger:
            _ensure_numbered(table)


def ensure_attempts(catalog: "Catalog", stream: str) -> None:
    """Create the table of attempts to replay dead letters of a stream, unless it exists."""
    name, schema = stream_tables(stream).attempts, _schema(_ATTEMPTS)
    if not _ensure_table(catalog, name, schema, INGESTED_AT, {}):
        evolve(catalog.load_table(name), schema)


def ensure_removals(catalog: "Catalog", stream: str) -> None:
    """Create the account of rows removed from the tables of a stream, unless it exists."""
    name, schema = stream_tables(stream).removals, _schema(_REMOVALS)
    if not _ensure_table(catalog, name, schema, REMOVED_AT, _LEDGER_PROPERTIES):
        evolve(catalog.load_table(name), schema)


def ensure_silver_tables(catalog: "Catalog", contract: Contract, tables: SilverTables) -> None:
    """Create missing silver tables of a stream, and add the contract's new fields to existing ones."""
    bronze = _bronze_columns(contract)
    for name, columns, day_of, properties in (
        (tables.kept, [*bronze, _CONTENT], contract.event_time, _KEPT_PROPERTIES),
        (tables.conflicts, [*bronze, *_WINNER], contract.event_time, {}),
        (tables.late, [*bronze, _PASSED], contract.event_time, {}),
        (tables.ledger, _SILVER_LEDGER, DECIDED_AT, _LEDGER_PROPERTIES),
    ):
        schema = _schema(columns)
        of_fields, lacked = ({}, _ROW_HASH) if name == tables.ledger else (contract.renamed, {})
        if not _ensure_table(catalog, name, schema, day_of, properties | renaming(of_fields)):
            evolve(catalog.load_table(name), schema, of_fields, lacked)


def ensure_message_columns(catalog: "Catalog", stream: str) -> None:
    """Add the columns for key and headers of messages to the tables of a stream."""
    schema = _schema(_MESSAGE)
    names = stream_tables(stream)
    for name in (names.bronze, names.dead_letters):
        table = catalog.load_table(name)
        if lacking(table.schema(), schema):
            evolve(table, schema)


def _ensure_table(catalog: "Catalog", name: str, schema: "Schema", day_of: str, properties: dict[str, str]) -> bool:
    """Create a table partitioned by the day of a column, unless it exists; return whether it was missing."""
    if catalog.table_exists(name):
        return False
    ensure_namespace(catalog, name.split(".")[0])
    catalog.create_table_if_not_exists(
        name, schema, partition_spec=_by_day(schema, day_of), properties=_PROPERTIES | properties
    )
    return True


def _ensure_numbered(ledger: "Table") -> None:
    """Continue the micro-batch numbers of an old ledger: in earlier versions, each checkpoint began at 0."""
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
    schema = _schema(_SCHEMA_CHANGES)
    table = catalog.create_table_if_not_exists(SCHEMA_CHANGES, schema, properties=_PROPERTIES)
    evolve(table, schema)
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


def _bronze_columns(contract: Contract) -> list[Column]:
    rescued = (RESCUED, _map("string"), "what did not fit: JSON path to the JSON text that landed")
    return [
        *_columns(contract),
        *[rescued] * (contract.drift is DriftPolicy.RESCUE),
        *_provenance("index of the record in its batch"),
    ]


def dead_letter_schema() -> "Schema":
    """Iceberg schema of ``dead_letters.<stream>``."""
    return _schema(_DEAD_LETTER)


def silver_ledger_schema() -> "Schema":
    """Iceberg schema of ``ledger.<stream>_silver``."""
    return _schema(_SILVER_LEDGER)


def gold_schema(product: Product) -> "Schema":
    """Iceberg schema of ``gold.<product>``."""
    keys = [(key.name, _iceberg_type(key.type), key.description) for key in product.keys]
    measures = [(measure.name, _iceberg_type(measure.type), "") for measure in product.measures]
    return _schema([*_WINDOW, *keys, *measures, _COMPUTED])


def ensure_samples_tables(catalog: "Catalog", samples: Samples, names: SamplesTables) -> None:
    """Create missing tables of a product of samples. They are append-only."""
    properties = {PRODUCT: samples.digest, "comment": samples.description}
    reading = [
        (field.name, _iceberg_type(field.type), field.description)
        for field in (samples.device, samples.event_time, samples.value)
    ]
    kept, anomalies = [*_WINDOW, *reading, _ROLES, _COMPUTED], [*reading, *_DETECTION, _COMPUTED]
    _ensure_table(catalog, names.anomalies, _schema(anomalies), samples.event_time.name, properties)
    _ensure_table(catalog, names.samples, _schema(kept), WINDOW_START, properties)


def _schema(columns: Sequence[Column]) -> "Schema":
    from pyiceberg.schema import Schema, assign_fresh_schema_ids

    fields = [_field(name, kind, comment) for name, kind, comment in columns]
    return assign_fresh_schema_ids(Schema.model_validate({"type": "struct", "fields": fields}))


def _by_day(schema: "Schema", column: str) -> "PartitionSpec":
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform

    return PartitionSpec(PartitionField(schema.find_field(column).field_id, 1000, DayTransform(), f"{column}_day"))


def _columns(fields: Iterable[Field]) -> list[Column]:
    return [(field.name, _iceberg_type(field.type), _comment(field)) for field in fields]


def _comment(field: Field) -> str:
    state = "Dropped: null in new rows." if field.dropped else "Deprecated." if field.deprecated else ""
    return f"{state} {field.description}".strip()


def _iceberg_type(kind: Type) -> IcebergType:
    match kind:
        case DecimalType():
            return f"decimal({kind.precision}, {kind.scale})"
        case MapType():
            return _map(_iceberg_type(kind.value))
        case ListType():
            return _list(_iceberg_type(kind.item))
        case ObjectType():
            return _struct(_columns(kind.fields))
        case PrimitiveType():
            return {PrimitiveType.TIMESTAMP: "timestamptz", PrimitiveType.SCALAR: "string"}.get(kind, kind.value)
