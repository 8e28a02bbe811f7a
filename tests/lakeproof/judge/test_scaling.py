"""Time grows linearly: four times the input takes about four times as long, in every part."""

import gc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.selection import only_with_all

from consumer.iceberg.data_files import DataFileWriter, Target
from lakeproof.contracts import (
    Contract,
    DecimalType,
    DriftPolicy,
    Field,
    ListType,
    MapType,
    ObjectType,
    PrimitiveType,
)
from lakeproof.judge.batch import Judge
from reader.verify.landed.parsed import as_units
from reader.verify.landed.units import find_units

DOUBLE = PrimitiveType.DOUBLE
CONTRACT = Contract(
    "s",
    "1",
    "",
    (
        Field("id", PrimitiveType.STRING, required=True),
        Field("d", DOUBLE),
        Field("at", PrimitiveType.TIMESTAMP),
        Field("day", PrimitiveType.DATE),
        Field("n", DecimalType(38, 10)),
        Field("free", PrimitiveType.SCALAR),
        Field("long", PrimitiveType.LONG),
        Field("few", PrimitiveType.DOUBLE, allowed=("0", "1")),
        Field("doubles", ListType(DOUBLE)),
        Field("map", MapType(DOUBLE)),
        Field("lists", MapType(ListType(DOUBLE))),
        Field("o", ObjectType((Field("d", DOUBLE), Field("e", DOUBLE)))),
        *(Field(f"d{number}", DOUBLE) for number in range(30)),
    ),
    ("id",),
    "at",
)
POLICIES = {policy: Judge(replace(CONTRACT, drift=policy)) for policy in DriftPolicy}

Make = Callable[[int], bytes]


def array(record: bytes) -> Make:
    """Make an array of records, each with its number in place of ``#``."""
    return lambda count: b"[" + b",".join(record.replace(b"#", b"%d" % number) for number in range(count)) + b"]"


def lines(record: bytes) -> Make:
    return lambda count: b"\n".join(record.replace(b"#", b"%d" % number) for number in range(count))


def around(begin: bytes, part: bytes, end: bytes) -> Make:
    """Make one record with many parts."""
    return lambda count: begin + part * count + end


ZEROS = b",".join(b'"d%d":0' % number for number in range(30))
FAMILIES: dict[str, tuple[Make, int]] = {
    "zeros": (array(b'{"id":"#","d":0.0}'), 9_000),
    "zeros in March": (array(b'{"id":"#","d":0,"at":"2026-03-04T05:00:00Z","day":"2026-03-04"}'), 9_000),
    "zeros and a -0": (lambda count: array(b'{"id":"#","d":0.0}')(count)[:-1] + b',{"id":"z","long":-0}]', 9_000),
    "zeros beside texts that look like -0": (array(b'{"id":"#, -0, x","d":0}'), 9_000),
    "-0 in every record": (array(b'{"id":"#","d":-0,"long":-0}'), 5_000),
    "lines of zeros": (lines(b'{"id":"#","d":0.0,"at":"2026-03-04T05:00:00Z"}'), 9_000),
    "many columns of zeros": (array(b'{"id":"#",%b}' % ZEROS), 1_500),
    "zeros within": (array(b'{"id":"#","doubles":[0,0],"map":{"a":0},"o":{"d":0,"e":0.0},"few":0}'), 3_000),
    "one record of zeros": (around(b'[{"id":"a","doubles":[0', b",0", b"]}]"), 80_000),
    "one record of -0": (around(b'[{"id":"a","doubles":[0', b",-0", b"]}]"), 40_000),
    "a map of zeros": (
        lambda count: b'{"id":"a","map":{' + b",".join(b'"k%d":0' % number for number in range(count)) + b"}}",
        30_000,
    ),
    "texts that look like keys": (array(b'{"id":"\\":","free":"\\": #"}'), 6_000),
    "unusual times": (array(b'{"id":"#","at":"2026-03-04T05:00Z","day":"2024-02-29"}'), 6_000),
    "unknown fields": (array(b'{"id":"#","x":1,"y":{"z":[1,2]}}'), 2_500),
    "one record of unknown fields": (
        lambda count: b'{"id":"a",' + b",".join(b'"x%d":1' % number for number in range(count)) + b"}",
        10_000,
    ),
    "one list of what does not fit": (around(b'{"id":"a","doubles":["x"', b',"x"', b"]}"), 20_000),
    "a long key around what does not fit": (
        lambda count: b'{"id":"a","lists":{"' + b"k" * (3 * count) + b'":[' + b",".join([b'""'] * count) + b"]}}",
        10_000,
    ),
    "repeated keys": (around(b'{"id":"a"', b',"d":0', b"}"), 20_000),
    "digits": (around(b'{"id":"a","n":1', b"0123456789", b',"d":1}'), 100_000),
    "digits of a double": (around(b'{"id":"a","d":1.', b"0123456789", b"}"), 100_000),
    "digits behind zeros": (around(b'{"id":"a","n":0.', b"0000000000", b"1}"), 100_000),
    "escapes": (around(b'{"id":"', b"\\n\\u00e9", b'","d":0}'), 200_000),
    "escapes and an end that is missing": (around(b'{"id":"', b"\\n\\\\", b""), 200_000),
    "broken records": (array(b'{"id":"#",x}'), 3_000),
    "numbers with a zero before": (array(b"0#"), 4_000),
    "half brackets": (around(b"", b'{"id":', b""), 100_000),
    "lines that are no records": (lines(b'{"id":"#"'), 20_000),
    "lines of other things": (lambda count: b'{"id":"a"}\n' + lines(b'x "#')(count), 8_000),
    "quotes": (around(b'{"id":"a"}\n', b'"', b""), 1_000_000),
    "backslashes": (around(b'["', b"\\", b'"]'), 1_000_000),
    "spaces": (around(b'[{"id":"a"}', b" ", b"]"), 2_000_000),
    "spaces between": (around(b'[{"id":"a"}', b' , {"id":"b"}', b"]"), 20_000),
}  # fmt: skip


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """Return the best of several times: other load, and memory held by this process, can only add time."""
    best = float("inf")
    gc.disable()
    try:
        for _ in range(times):
            began = process_time()
            work()
            best = min(best, process_time() - began)
    finally:
        gc.enable()
    return best


def assert_in_proportion(make: Callable[[int], Any], work: Callable[[Any], object], count: int) -> None:
    small, large = make(count), make(4 * count)
    work(small)  # warms up imports and compilation
    for _ in range(3):
        once, four = seconds(lambda: work(small)), seconds(lambda: work(large), 2)
        if four < max(8 * once, 0.25):
            return
    pytest.fail(f"{count:,} took {once:.3f} s, {4 * count:,} took {four:.3f} s, three times")


SLOW_TO_JUDGE = {"numbers with a zero before", "half brackets", "lines that are no records", "lines of other things"}
DRIFTING = {
    "unknown fields",
    "one record of unknown fields",
    "one list of what does not fit",
    "a long key around what does not fit",
}
"""Families whose records have values that are rescued."""
RECOUNTED_BY_DEFAULT = {"zeros", "lines of zeros", "unknown fields", "escapes", "quotes", "texts that look like keys"}


@pytest.mark.parametrize(
    ("family", "policy"),
    [
        *(
            only_with_all(family, DriftPolicy.FREEZE) if family in SLOW_TO_JUDGE else (family, DriftPolicy.FREEZE)
            for family in FAMILIES
        ),
        *(
            pytest.param(family, DriftPolicy.RESCUE, marks=pytest.mark.all if family in DRIFTING else pytest.mark.long)
            for family in FAMILIES
        ),
    ],
)
def test_judging_takes_time_in_proportion(family, policy):
    make, count = FAMILIES[family]
    assert_in_proportion(make, lambda batch: list(POLICIES[policy].judge(batch)), count)


@pytest.mark.parametrize(
    "family", [family if family in RECOUNTED_BY_DEFAULT else only_with_all(family) for family in FAMILIES]
)
def test_recounting_takes_time_in_proportion(family):
    make, count = FAMILIES[family]
    with duckdb.connect() as connection:

        def recount(batch: bytes) -> None:
            wanted = range(0, count, 7)
            find_units(batch, frozenset(wanted))
            as_units(connection, {"a": batch}, {"a": frozenset(wanted)})

        assert_in_proportion(make, recount, count)


class Nowhere:
    """A storage that discards everything."""

    def write_new(self, uri: str, data: bytes) -> None:
        pass


def test_writing_rows_of_many_days_takes_time_in_proportion():
    schema = pa.schema([pa.field("at", pa.timestamp("us", "UTC")), pa.field("text", pa.string())])
    target = Target(Path("/nowhere").as_uri(), schema, "at", "at_day")

    def make(days: int) -> list[pa.RecordBatch]:
        first = datetime(1990, 1, 1, tzinfo=UTC)
        moments = [first + timedelta(days=(number * 7919) % days) for number in range(20 * days)]
        return [
            pa.record_batch([moments[at : at + 500], ["x" * 300] * len(moments[at : at + 500])], schema=schema)
            for at in range(0, len(moments), 500)
        ]

    def write(batches: list[pa.RecordBatch]) -> None:
        writer = DataFileWriter(target, Nowhere())  # type: ignore[arg-type]
        for batch in batches:
            writer.write(batch)
        assert len(writer.close()) > 200

    assert_in_proportion(make, write, 400)
