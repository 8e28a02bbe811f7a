"""Find alerts in the messages of a topic: readings that meet their contract, with a value out of range.

The consumer's own judge defines which readings these are. Nearly all messages are plain and need no judge: in a plain
message, every token has the usual form, so Spark columns can determine for certain that its record is good. Columns are
fast, and the only thing that Spark's real-time mode can run. All other messages are judged.
"""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from consumer.iceberg.tasks import map_in_arrow
from consumer.layers.gold.columns import EPOCH, micros
from consumer.layers.samples.reading import Sampler
from lakeproof.contracts import ISO_8601, Bound, Contract, Field, PrimitiveType
from lakeproof.gold.samples import Samples
from lakeproof.install.judges import JudgeName
from lakeproof.judge.batch import Judge
from lakeproof.kafka.offsets import OFFSET_DIGITS, source_name
from lakeproof.settings import Limits
from lakeproof.tables.names import POSITION, SOURCE

_MOST_BYTES = 64 << 10
_STRING = r'"([^"\\\x00-\x1f]*)"'
_NUMBER = r"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
_TOKENS = {
    PrimitiveType.STRING: _STRING,
    PrimitiveType.SCALAR: f"(?:{_STRING}|{_NUMBER})",  # true and false are left to the judge
    PrimitiveType.DOUBLE: _NUMBER,
    PrimitiveType.TIMESTAMP: (
        r'"((?!000[01]|9999)[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]'
        r'(?:\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9]))"'
    ),
}
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"


def why_never_plain(contract: Contract) -> str:
    """Return the reason why no message of a stream is plain; empty if messages can be plain."""
    if contract.rules:
        return "the contract has rules"
    for field in contract.live:
        if field.type not in _TOKENS:
            return f"{field.name} is not a string, a scalar, a double or a timestamp"
        if field.allowed or field.constraints.pattern:
            return f"{field.name} has a pattern or an enum"
        if field.time != ISO_8601:
            return f"{field.name} has the format {field.time.format}"
    return ""


def plain_alerts(messages: DataFrame, samples: Samples, contract: Contract, limits: Limits) -> DataFrame:
    """Return the alerts of plain messages, as messages for a topic: ``key`` and ``value``."""
    value = _double(samples.value)
    beyond = F.lit(False)
    if samples.minimum is not None:
        beyond |= value < F.lit(samples.minimum)
    if samples.maximum is not None:
        beyond |= value > F.lit(samples.maximum)
    source = F.concat_ws("/", "topic", "partition", F.lpad(F.col("offset").cast("string"), OFFSET_DIGITS, "0"))
    alert = {
        "id": F.concat(source, F.lit("/0")),
        samples.device.name: _text(samples.device),
        samples.event_time.name: F.date_format(_timestamp(samples.event_time), _TIME),
        samples.value.name: value,
        "minimum": F.lit(samples.minimum).cast("double"),
        "maximum": F.lit(samples.maximum).cast("double"),
        SOURCE: source,
        POSITION: F.lit(0),
    }
    structure = F.struct(*(column.alias(name) for name, column in alert.items()))
    found = messages.where(is_plain(contract, limits) & beyond)
    return found.select(_text(samples.device).alias("key"), F.to_json(structure).alias("value"))


def other_alerts(
    messages: DataFrame, samples: Samples, contract: Contract, limits: Limits, choice: JudgeName = "auto"
) -> DataFrame:
    """Return the alerts of all other messages; see :func:`plain_alerts`."""
    judge = Judge(contract, limits, choice)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [alert for row in batch.to_pylist() for alert in judged_alerts(judge, samples, **row)]
            keys, values = ([each[index] for each in found] for index in (0, 1))
            yield pa.RecordBatch.from_pydict(
                {"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())}
            )

    others = messages.where(~is_plain(contract, limits) & F.col("value").isNotNull())
    return map_in_arrow(others.select("value", "topic", "partition", "offset"), work, "key string, value string")


def judged_alerts(
    judge: Judge, samples: Samples, value: bytes, topic: str, partition: int, offset: int
) -> Iterator[tuple[str, str]]:
    """Yield the key and the value of each alert of a message, as the consumer judges it."""
    if len(value) > judge.limits.unpacked_bytes:
        return
    is_anomaly = Sampler(samples.minimum, samples.maximum).is_anomaly
    source = source_name(topic, partition, offset)
    for judged in judge.judge(value):
        rows = judged.good.values
        if not rows.num_rows:
            continue
        fields = (samples.device.name, samples.event_time.name, samples.value.name)
        devices, times, values = (rows.column(rows.schema.get_field_index(name)) for name in fields)
        texts: Any = pc.strftime(times, "%Y-%m-%dT%H:%M:%SZ")
        columns = (devices, texts, values, judged.good.positions)
        for device, time, measured, position in zip(*(column.to_pylist() for column in columns), strict=True):
            if is_anomaly(measured):
                alert = {
                    "id": f"{source}/{position}",
                    samples.device.name: device,
                    samples.event_time.name: time,
                    samples.value.name: measured,
                    "minimum": samples.minimum,
                    "maximum": samples.maximum,
                    SOURCE: source,
                    POSITION: position,
                }
                yield device, json.dumps({name: each for name, each in alert.items() if each is not None})


def is_plain(contract: Contract, limits: Limits) -> Column:
    """Return whether a message is a plain record that meets the contract; false if it might not."""
    if why_never_plain(contract):
        return F.lit(False)
    pair = "|".join(_pair(field) for field in contract.live)
    record = rf"\A *\{{ *(?:{pair})(?: *, *(?:{pair})){{{len(contract.live) - 1}}} *\}} *\z"
    text = _message()
    most = min(_MOST_BYTES, limits.record_bytes, limits.unpacked_bytes)
    conditions = [F.octet_length("value") <= most, F.is_valid_utf8(text), text.rlike(record)]
    conditions += [text.rlike(f'"{re.escape(field.name)}" *:') for field in contract.live]  # all of them, so each once
    conditions += [condition for field in contract.live for condition in _meets(field)]
    return F.coalesce(reduce(Column.__and__, conditions), F.lit(False))


def _message() -> Column:
    return F.col("value").cast("string")


def _pair(field: Field) -> str:
    return f'"{re.escape(field.name)}" *: *{_TOKENS[_kind(field)]}'


def _kind(field: Field) -> PrimitiveType:
    return PrimitiveType(field.type)  # type: ignore[arg-type]  # one of _TOKENS, see why_never_plain


def _text(field: Field) -> Column:
    groups = (1, 2) if field.type is PrimitiveType.SCALAR else (1,)  # a group that does not match is empty
    return F.concat(*(F.regexp_extract(_message(), _pair(field), group) for group in groups))


def _double(field: Field) -> Column:
    return _text(field).try_cast("double")


def _timestamp(field: Field) -> Column:
    return _text(field).try_cast("timestamp")


def _meets(field: Field) -> Iterator[Column]:
    """Yield the conditions under which a value in the usual form meets its type and constraints."""
    limits = field.constraints
    match field.type:
        case PrimitiveType.STRING | PrimitiveType.SCALAR:
            length = F.char_length(_text(field))
            yield length >= (limits.min_length or 0)
            if limits.max_length is not None:
                yield length <= limits.max_length
        case PrimitiveType.DOUBLE:
            number = _double(field)
            yield F.abs(number) < F.lit(float("inf"))
            yield from _in_range(number, limits.minimum, limits.maximum)
        case _:
            at = F.unix_micros(_timestamp(field))
            yield at.isNotNull()
            yield from _in_range(at, limits.minimum, limits.maximum)


def _in_range(column: Column, minimum: Bound | None, maximum: Bound | None) -> Iterator[Column]:
    if minimum:
        end = _literal(minimum.value)
        yield column > end if minimum.exclusive else column >= end
    if maximum:
        end = _literal(maximum.value)
        yield column < end if maximum.exclusive else column <= end


def _literal(value: object) -> Column:
    return F.lit(micros(value - EPOCH) if isinstance(value, datetime) else value)
