"""Rows of tables as messages: key, value and headers.

The header ``lakeproof-id`` identifies a message. A message that is sent again after a crash has the same id.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from lakeproof.gold.model import WINDOW_START, Product
from lakeproof.kafka.sending import Outgoing
from lakeproof.tables.names import (
    ATTEMPT,
    CONTENT_HASH,
    CONTRACT_VERSION,
    HEADERS,
    INGESTED_AT,
    KEY,
    LANDED_AT,
    MICRO_BATCH_ID,
    POSITION,
    RAW,
    REASONS,
    RESCUED,
    SOURCE,
    UPDATED_AT,
)

_OF_THE_LAKE = {
    SOURCE,
    POSITION,
    MICRO_BATCH_ID,
    LANDED_AT,
    INGESTED_AT,
    CONTRACT_VERSION,
    CONTENT_HASH,
    KEY,
    HEADERS,
    RESCUED,
}
_HEADERS = "array<struct<key:string,value:binary>>"
_CUT = "lakeproof-cut"
_IDENTIFYING = {"lakeproof-id", "lakeproof-source", "lakeproof-position"}
_TIMES = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def of_silver(rows: DataFrame, primary_key: Sequence[str]) -> DataFrame:
    """Return a message for each row: its fields as JSON, without null fields, and the primary key as the key.

    A primary key of one field is sent as its text, one of several fields as a JSON object.
    """
    fields = [name for name in rows.columns if name not in _OF_THE_LAKE]
    key = F.col(_quoted(primary_key[0])).cast("string") if len(primary_key) == 1 else _json(primary_key)
    identity = F.concat_ws("#", SOURCE, F.col(POSITION).cast("string"))
    return _messages(rows, key.cast("binary"), _json(fields).cast("binary"), _headers(identity, SOURCE, POSITION))


def of_dead_letters(rows: DataFrame) -> DataFrame:
    """Return a message for each dead letter: its bytes, with its own key and headers if it was a message.

    The reasons are a header. A dead letter whose bytes were too large to be kept has an empty value.
    """
    attempt = F.coalesce(F.col(ATTEMPT), F.lit(1)).cast("string")
    identity = F.concat_ws("#", SOURCE, F.col(POSITION).cast("string"), attempt)
    own = F.concat(_headers(identity, SOURCE, POSITION), _header("reasons", F.to_json(REASONS)))
    of_topic = KEY in rows.columns
    headers = F.concat(F.coalesce(F.col(HEADERS).cast(_HEADERS), F.array().cast(_HEADERS)), own) if of_topic else own
    key = F.col(KEY) if of_topic else F.lit(None).cast("binary")
    return _messages(rows, key, F.coalesce(F.col(RAW), F.lit(b"")), headers)


def shortened(message: Outgoing) -> Outgoing | None:
    """Return a dead letter without its bytes, or if it has none, with what identifies it alone; None if it has that."""
    if message.value:
        return replace(message, value=b"", headers=[*message.headers, (_CUT, b"value")])
    kept = [header for header in message.headers if header[0] in _IDENTIFYING]
    least = replace(message, key=None, headers=[*kept, (_CUT, b"value, key, headers")])
    return None if message == least else least


def of_gold(rows: DataFrame, product: Product) -> DataFrame:
    """Return a message for each window: its row as JSON, and the start of the window and the product's keys as the key.

    A window that is computed again is another message with the same key.
    """
    key = _json([WINDOW_START, *(key.name for key in product.keys)], nulls=True)
    identity = F.concat_ws("#", F.lit(product.name), key, F.unix_micros(UPDATED_AT).cast("string"))
    return _messages(rows, key.cast("binary"), _json(rows.columns, nulls=True).cast("binary"), _headers(identity))


def _messages(rows: DataFrame, key: Column, value: Column, headers: Column) -> DataFrame:
    return rows.select(key.alias("key"), value.alias("value"), headers.alias("headers"))


def _headers(identity: Column, *columns: str) -> Column:
    own = {"id": identity} | {name.removeprefix("_"): F.col(name).cast("string") for name in columns}
    return F.concat(*(_header(name, value) for name, value in own.items()))


def _header(name: str, value: Column) -> Column:
    pair = F.struct(F.lit(f"lakeproof-{name}").alias("key"), value.cast("binary").alias("value"))
    return F.array(pair).cast(_HEADERS)


def _json(names: Sequence[str], *, nulls: bool = False) -> Column:
    columns = F.struct(*(F.col(_quoted(name)).alias(name) for name in names))
    return F.to_json(columns, {**_TIMES, "ignoreNullFields": str(not nulls).lower()})


def _quoted(name: str) -> str:
    return f"`{name}`"
