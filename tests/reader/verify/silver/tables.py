"""Silver tables filled by the plain model from rows of bronze, and a DuckDB session with them in memory."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
from tests.consumer.layers.silver.model import Row as ModelRow
from tests.consumer.layers.silver.model import decide

from lakeproof.contracts import Contract
from lakeproof.tables.names import silver_tables, stream_tables
from lakeproof.tables.schemas import bronze_schema, silver_ledger_schema
from reader.connect import Session

NOON = datetime(2026, 1, 20, 12, tzinfo=UTC)
BRONZE, LEDGER = "bronze.events", "ledger.events_silver"
KEPT, CONFLICTS, LATE = "silver.events", "silver.events_conflicts", "silver.events_late"
VERDICTS = ("kept", "duplicates", "conflicts", "late")
TABLE_OF = {"kept": KEPT, "conflicts": CONFLICTS, "late": LATE}

Row = dict[str, Any]
Tables = dict[str, list[Row]]


def event(place: tuple[int, str, int], key: str, days: float = 0, content: str = "a", **changes: Any) -> Row:
    """Return a row of bronze by micro-batch, source and position; its event is a number of days after noon."""
    micro_batch, source, position = place
    return {
        "user_id": content,
        "event_id": key,
        "event_timestamp": NOON + timedelta(days=days),
        "event_type": "page_view",
        "product_id": None,
        "properties": [("a", "1"), ("b", None)],
        "_source": source,
        "_position": position,
        "_micro_batch_id": micro_batch,
        "_landed_at": NOON,
        "_ingested_at": NOON + timedelta(days=100),
        "_contract_version": "1.0.0",
    } | changes


def decided(bronze: list[Row], horizon: timedelta | None) -> Tables:
    """Return all tables, with silver filled by the model."""
    rows = [
        ModelRow(
            row["_micro_batch_id"],
            row["_source"],
            row["_position"],
            row["event_id"],
            row["event_timestamp"],
            repr([row["user_id"], row["event_type"], row["product_id"], dict(row["properties"] or ())]),
            row["_ingested_at"],
        )
        for row in bronze
    ]
    verdicts = decide(rows, horizon)
    horizons = {number: _horizon(rows, number, horizon) for number in {row.micro_batch for row in rows}}
    tables: Tables = {BRONZE: list(bronze), KEPT: [], CONFLICTS: [], LATE: [], LEDGER: []}
    counts: dict[tuple[str, int], Row] = {}
    for row in bronze:
        verdict, winner = verdicts[row["_source"], row["_position"]]
        place = (row["_source"], row["_micro_batch_id"])
        counts.setdefault(place, {"bronze": 0} | dict.fromkeys(VERDICTS, 0))
        counts[place]["bronze"] += 1
        counts[place][verdict] += 1
        if verdict == "conflicts":
            assert winner
            row = row | {"_winner_source": winner[0], "_winner_position": winner[1]}
        if verdict == "late":
            row = row | {"_horizon": horizons[row["_micro_batch_id"]]}
        if verdict in TABLE_OF:
            tables[TABLE_OF[verdict]].append(row)
    tables[LEDGER] = [
        {"source": source, "micro_batch_id": number, "_decided_at": NOON, "_contract_version": "1.0.0"} | values
        for (source, number), values in counts.items()
    ]
    return tables


def _horizon(rows: list[ModelRow], number: int, length: timedelta | None) -> datetime | None:
    before = [min(row.event_time, row.ingested_at) for row in rows if row.micro_batch < number]
    return max(before) - length if before and length is not None else None


def arrow_schemas(contract: Contract) -> dict[str, pa.Schema]:
    """Columns of the tables."""
    bronze = bronze_schema(contract).as_arrow()
    winner = [pa.field("_winner_source", pa.string()), pa.field("_winner_position", pa.int64())]
    horizon = pa.field("_horizon", pa.timestamp("us", "UTC"))
    names = silver_tables(contract.stream)
    return {
        stream_tables(contract.stream).bronze: bronze,
        names.kept: bronze.append(pa.field("_content_hash", pa.binary())),
        names.conflicts: pa.schema([*bronze, *winner]),
        names.late: bronze.append(horizon),
        names.ledger: silver_ledger_schema().as_arrow(),
    }


def in_memory(connection: duckdb.DuckDBPyConnection, contract: Contract, tables: Mapping[str, list[Row]]) -> Session:
    """Write tables to DuckDB's own database, under the same names as in the catalog."""
    connection.execute("SET TimeZone = 'UTC'")
    for schema in ("bronze", "silver", "ledger"):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    for name, schema in arrow_schemas(contract).items():
        connection.register("written", pa.Table.from_pylist(tables.get(name, []), schema=schema))
        connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM written")
        connection.unregister("written")
    return Session(connection, [])
