"""dlt to Iceberg, with the contract's rules as a pydantic model.

dlt's own schema contract can drop a bad row, but not keep it: so the resource validates, and names the table of each
part. It yields Arrow tables, which dlt writes as they are; it would normalize Python objects one by one.
"""

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

import dlt
import duckdb
import orjson
import pyarrow as pa
from dlt.common.libs.pyiceberg import get_iceberg_tables
from dlt.destinations import filesystem
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)
from pyiceberg.table import Table

from lakeproof.settings import load_settings

_FILES_AT_ONCE = 100
_TIME: pa.DataType = pa.timestamp("us", tz="UTC")
_BRONZE = pa.schema(
    {
        "user_id": pa.string(),
        "event_id": pa.string(),
        "event_timestamp": _TIME,
        "event_type": pa.string(),
        "product_id": pa.string(),
        "amount": pa.decimal128(12, 2),
        "properties": pa.string(),
        "_source": pa.string(),
        "_ingested_at": _TIME,
    }
)
_DEAD = pa.schema({"raw": pa.string(), "reason": pa.string(), "_source": pa.string(), "_ingested_at": _TIME})


def _number(value: object) -> object:
    """Reject text, which pydantic would convert to a number; its strict mode rejects JSON numbers."""
    if isinstance(value, str | bool):
        raise ValueError("expected a number")  # noqa: TRY004 - what pydantic expects of a validator
    return value


class Event(BaseModel):
    """The contract, to the extent that a model can express it."""

    model_config = ConfigDict(extra="forbid")

    user_id: StrictStr
    event_id: StrictStr
    event_timestamp: AwareDatetime
    event_type: Literal["page_view", "purchase"]
    product_id: StrictStr | None = None
    amount: Annotated[Decimal, BeforeValidator(_number)] | None = None
    properties: dict[str, StrictStr | StrictBool | StrictInt | StrictFloat | None] | None = None


class Divided:
    """Rows of both tables, collected from files."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._good: list[dict[str, Any]] = []
        self._bad: list[dict[str, Any]] = []

    def add(self, path: Path) -> None:
        """Validate each record of a file."""
        source, data = str(path), path.read_bytes()
        at = {"_source": source, "_ingested_at": self._now}
        try:
            records = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            self._bad.append({"raw": data.decode(errors="replace"), "reason": str(error), **at})
            return
        for record in records:
            try:
                event = Event.model_validate(record)
            except ValidationError as error:
                reasons = "; ".join(f"{found['loc']}: {found['type']}" for found in error.errors(include_url=False))
                self._bad.append({"raw": orjson.dumps(record).decode(), "reason": reasons, **at})
            else:
                # dlt stores nested objects as JSON text, and so does this.
                properties = orjson.dumps(event.properties).decode()
                self._good.append({**event.__dict__, "properties": properties, **at})

    def tables(self) -> Iterator[Any]:
        """Yield the collected rows, each part for its table."""
        yield dlt.mark.with_table_name(pa.Table.from_pylist(self._good, _BRONZE), "bronze")
        yield dlt.mark.with_table_name(pa.Table.from_pylist(self._bad, _DEAD), "dead_letters")


@dlt.resource(name="events", write_disposition="append", table_format="iceberg")
def events(folder: Path) -> Iterator[Any]:
    """Yield the rows of all files below a folder, several files at a time."""
    paths = sorted(folder.rglob("*.json"))
    for first in range(0, len(paths), _FILES_AT_ONCE):
        divided = Divided(datetime.now(UTC))
        for path in paths[first : first + _FILES_AT_ONCE]:
            divided.add(path)
        yield from divided.tables()


def main() -> None:
    """Make the pipeline; then, timed, run it over all landed files; then count."""
    folder = Path(os.environ["BENCH_FOLDER"])
    landing = Path(unquote(urlsplit(load_settings().landing.uri).path)) / "events"
    os.environ |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "DLT_DATA_DIR": str(folder / "dlt")}
    pipeline = dlt.pipeline(
        "bench",
        pipelines_dir=str(folder / "pipelines"),
        destination=filesystem(bucket_url=(folder / "lake").as_uri()),
        dataset_name="lake",
    )
    began = time.monotonic()
    pipeline.run(events(landing), loader_file_format="parquet")
    seconds = time.monotonic() - began
    print(json.dumps({"seconds": seconds} | counts(pipeline)))


def counts(pipeline: dlt.Pipeline) -> dict[str, int]:
    """Count with DuckDB the rows in the data files of each table's current snapshot."""
    tables = get_iceberg_tables(pipeline)
    return {name: _rows(tables[name]) if name in tables else 0 for name in ("bronze", "dead_letters")}


def _rows(table: Table) -> int:
    paths = [task.file.file_path for task in table.scan().plan_files()]
    if not paths:
        return 0
    found: int = duckdb.execute("SELECT count(*) FROM read_parquet($paths)", {"paths": paths}).fetchall()[0][0]
    return found


if __name__ == "__main__":
    main()
