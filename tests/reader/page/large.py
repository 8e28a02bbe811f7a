"""A large lake for the page: rows that DuckDB makes up, and the metadata of an hour of commits.

``python -m tests.reader.page.large FOLDER`` makes one of 10,000,000 rows of bronze and 1,000,000 dead letters, in
10,000 micro-batches, and prints what its page takes.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog

from consumer.iceberg.marker import Committed, Marker, property_of
from lakeproof.catalog import open_catalog
from lakeproof.checkpoint import bronze_query
from lakeproof.contracts import load_contract
from lakeproof.gold.product_file import load_products
from lakeproof.landing.zone import landing_zone
from lakeproof.reasons import OF_BATCHES, Reason
from lakeproof.settings import Settings, settings_of
from lakeproof.state.landing_log import LandingLog
from lakeproof.tables.names import gold_query, gold_table, silver_query, silver_tables, stream_tables
from lakeproof.tables.schemas import ensure_silver_tables, ensure_tables, gold_schema
from reader.page.collect import collect
from reader.page.render import render

ROOT = Path(__file__).parents[3]
NAMES, SILVER, GOLD = stream_tables("events"), silver_tables("events"), gold_table("user_activity")
ROWS, LETTERS, BATCHES = 1_000, 100, 10_000  # per micro-batch, and number of micro-batches
ENDS = {"duplicates": 20, "conflicts": 23, "late": 25, "kept": ROWS}  # per micro-batch, by verdict
SNAPSHOTS = 1_800  # number that a consumer keeps with micro-batches of two seconds
AT_ONCE = 500  # micro-batches
EVERY = 120  # seconds
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u2066\x1b[31m\x00\u200b"
COMMON = {Reason.WRONG_TYPE.value, Reason.MISSING_FIELD.value}  # in each micro-batch, besides a set of its own
CODES = sorted({each.value for each in Reason if each not in OF_BATCHES} - COMMON)

MACROS = f"""
SET TimeZone = 'UTC'; SET threads = 1;
CREATE MACRO source(m) AS format('{{:05}}.json', m);
CREATE MACRO own_codes(m) AS [code FOR code, n IN {CODES} IF (m + 1) & (1 << (n - 1)) > 0];
CREATE MACRO reason(code, path, detail) AS {{'code': code, 'path': path, 'detail': detail}};
CREATE MACRO ended(m) AS landing(m) + INTERVAL 1 SECOND;
"""
_PLACE = (
    "source(m) AS _source, n AS _position, m AS _micro_batch_id, landing(m) AS _landed_at, ended(m) AS _ingested_at, "
    "'1.1.0' AS _contract_version FROM range($start, $end) AS batches(m), range($first, $last) AS units(n)"
)
EVENTS = f"""
SELECT 'u' || (m * 7 + n) % 10000 AS user_id, format('{{:x}}-{{:x}}', m, n) AS event_id,
  landing(m) AS event_timestamp, CASE WHEN n % 10 = 0 THEN 'purchase' ELSE 'page_view' END AS event_type,
  CASE WHEN n % 10 = 0 THEN 'p1' END AS product_id, CASE WHEN n % 10 = 0 THEN 9.99 END AS amount,
  MAP {{'a': '1'}} AS properties, {_PLACE}
"""
BAD = f"""
SELECT CASE WHEN n < 60 THEN [reason('wrong_type', '$.user_id', 'expected a string, got 17')]
  WHEN n < 99 THEN [reason('missing_field', '$.event_type', 'required, but missing')]
  ELSE [reason(code, '$.field-' || m || $hostile, $hostile) FOR code IN own_codes(m)] END AS reasons,
  encode(CASE WHEN n < 99 THEN '{{"user_id": 17, "event_id": "e"}}'
  ELSE '{{"field-' || m || $hostile || '": "' || repeat('a', CASE WHEN m % 5000 = 4999 THEN 1000000 ELSE 9 END) || '"}}'
  END) AS raw, 1 AS _attempt, {_PLACE}
"""
LEDGER = f"""
SELECT source(m) AS source, 300000 AS size, m::VARCHAR AS etag, m AS micro_batch_id, 'test' AS checkpoint_id,
  {ROWS + LETTERS} AS units, {ROWS} AS bronze, MAP {{'wrong_type': 60, 'missing_field': 39,
  array_to_string(own_codes(m), '+'): 1}} AS dead_letters, landing(m) AS landed_at, ended(m) AS _ingested_at,
  '1.1.0' AS _contract_version FROM range($start, $end) AS batches(m)
"""
DECIDED = f"""
SELECT source(m) AS source, m AS micro_batch_id, {ROWS} AS bronze, {ROWS - ENDS["late"]} AS kept,
  {ENDS["duplicates"]} AS duplicates, {ENDS["conflicts"] - ENDS["duplicates"]} AS conflicts,
  {ENDS["late"] - ENDS["conflicts"]} AS late, ended(m) AS decided_at, '1.1.0' AS _contract_version
FROM range($start, $end) AS batches(m)
"""
WINDOWS = """
SELECT date_trunc('hour', landing(m)) AS window_start, window_start + INTERVAL 1 HOUR AS window_end,
  CASE WHEN u = 299 THEN $hostile ELSE 'u' || u END AS user_id,
  m % 100 + u AS event_count, 1 AS purchases, 9.99 AS total_amount, 1 AS products, landing(m) AS _updated_at
FROM range($start, $end, 30) AS batches(m), range(300) AS users(u)
"""


def make_large(settings: Settings, batches: int = BATCHES, snapshots: int = SNAPSHOTS) -> None:
    """Fill the tables of the stream events, its landing zone and landing log."""
    catalog, contract = open_catalog(settings), load_contract(settings.contracts, "events")
    ensure_tables(catalog, contract)
    ensure_silver_tables(catalog, contract, SILVER)
    (product,) = load_products(settings.gold, ["events"], lambda _: contract)
    catalog.create_namespace_if_not_exists("gold")
    catalog.create_table(GOLD, gold_schema(product))
    first = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=EVERY * batches)
    made = duckdb.connect()
    made.execute(f"CREATE MACRO landing(m) AS TIMESTAMPTZ '{first}' + to_seconds(m * {EVERY});{MACROS}")
    for start in range(0, batches, AT_ONCE):
        end = min(start + AT_ONCE, batches)
        for name, statement, more in _appends():
            table = catalog.load_table(name)
            rows = made.execute(statement, {"start": start, "end": end} | more).to_arrow_table()
            schema = table.schema().as_arrow()
            columns = [
                rows[each.name].cast(each.type) if each.name in rows.column_names else pa.nulls(len(rows), each.type)
                for each in schema
            ]
            table.append(pa.Table.from_arrays(columns, schema=schema))
    zone = landing_zone(settings, "events")
    for number in range(batches):
        zone.storage.write_new(f"{zone.root}/{number:05}.json", b"[]")
    log = LandingLog(settings.state.database, "events")
    log.append(zone.files())
    for query, names, end in (
        (bronze_query("events"), (NAMES.bronze, NAMES.dead_letters, NAMES.ledger), str(log.head())),
        (silver_query("events"), (SILVER.kept, SILVER.conflicts, SILVER.late, SILVER.ledger), str(batches)),
        (gold_query("user_activity"), (GOLD,), str(batches)),
    ):
        marker = Marker("", batches - 1, contract.digest, "0", end)
        for name in names:
            _age(catalog, name, query, marker, snapshots)


def _appends() -> Iterator[tuple[str, str, Mapping[str, object]]]:
    yield NAMES.bronze, EVENTS, {"first": 0, "last": ROWS}
    yield NAMES.dead_letters, BAD, {"first": 0, "last": LETTERS, "hostile": HOSTILE}
    yield NAMES.ledger, LEDGER, {}
    for name, before, verdict in (
        (SILVER.conflicts, "duplicates", "conflicts"),
        (SILVER.late, "conflicts", "late"),
        (SILVER.kept, "late", "kept"),
    ):
        yield name, EVENTS, {"first": ENDS[before], "last": ENDS[verdict]}
    yield SILVER.ledger, DECIDED, {}
    yield GOLD, WINDOWS, {"hostile": HOSTILE}


def _age(catalog: Catalog, name: str, query: str, marker: Marker, snapshots: int) -> None:
    """Set the marker of a table, and add snapshots of a number of micro-batches."""
    table = catalog.load_table(name)
    newest = table.current_snapshot()
    assert newest
    with table.transaction() as transaction:
        transaction.set_properties({property_of(query): Committed(marker, newest.snapshot_id, 1).as_text()})
    table.refresh()
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    last = metadata["snapshots"].pop()
    for back in range(snapshots - 1, -1, -1):
        own = replace(marker, micro_batch_id=marker.micro_batch_id - back)
        summary = last["summary"] | {property_of(query): Committed(own, last["snapshot-id"], 1).as_text()}
        at = last["timestamp-ms"] - 2_000 * back
        metadata["snapshots"].append(
            last | {"snapshot-id": last["snapshot-id"] - back, "timestamp-ms": at, "summary": summary}
        )
    aged = path.with_name(f"99999-{path.name[6:]}")
    aged.write_text(json.dumps(metadata))
    catalog.drop_table(name)
    catalog.register_table(name, f"file://{aged}")


def main(folder: Path) -> None:
    """Make the lake unless the folder has it, and read its page twice."""
    settings = settings_of({"LAKE_HOME": folder, "LAKE_CONTRACTS": ROOT / "contracts", "LAKE_GOLD": ROOT / "gold"})
    if not folder.exists():
        make_large(settings)
    for _ in range(3):
        began, worked = time.monotonic(), time.process_time()
        page = collect(settings, [])
        read, html = time.monotonic(), render(page)
        sys.stdout.write(
            f"{page.streams[0].ledger.landed:,} units: {read - began:.2f} s to read, {time.monotonic() - read:.2f} s "
            f"to render, {time.process_time() - worked:.2f} s of processor time, {len(html):,} characters\n"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
