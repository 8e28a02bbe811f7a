"""DuckDB alone: write the sound files to one Parquet file, without judging. ``python -m … SOUND_FILES_JSON``.

DuckDB's reader of JSON arrays stops at the first file that it cannot parse, so truncated files are omitted.
Fields that may have a wrong type are read as text or JSON, since one wrong type would stop the reader as well.
"""

import json
import os
import sys
import time
from pathlib import Path

import duckdb

_COLUMNS = (
    "{user_id: 'VARCHAR', event_id: 'VARCHAR', event_timestamp: 'VARCHAR', event_type: 'VARCHAR', "
    "product_id: 'VARCHAR', amount: 'VARCHAR', properties: 'JSON'}"
)


def main() -> None:
    """Read and write, timed; then count."""
    paths = json.loads(Path(sys.argv[1]).read_text())
    target = Path(os.environ["BENCH_FOLDER"]) / "events.parquet"
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    began = time.monotonic()
    connection.execute(
        "COPY (SELECT * REPLACE (try_cast(event_timestamp AS TIMESTAMPTZ) AS event_timestamp, "
        "try_cast(amount AS DECIMAL(12,2)) AS amount), filename AS _source "
        f"FROM read_json($paths, format = 'array', filename = true, columns = {_COLUMNS})) "
        f"TO '{target}' (FORMAT parquet, COMPRESSION zstd)",
        {"paths": paths},
    )
    seconds = time.monotonic() - began
    rows = connection.execute(f"SELECT count(*) FROM '{target}'").fetchall()[0][0]
    print(json.dumps({"seconds": seconds, "bronze": rows, "dead_letters": 0}))


if __name__ == "__main__":
    main()
