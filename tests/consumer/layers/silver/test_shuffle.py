"""Tasks decide the same as the driver."""

import random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.consumer.lake import Drain, SessionOf, rows
from tests.consumer.layers.silver.lakes import NOON, check, days, land, silver_layer
from tests.consumer.layers.silver.model import Row
from tests.consumer.layers.silver.test_verdicts import narrow, streams
from tests.consumer.taking import take_all
from tests.lakes import changed

from consumer.layers.silver import shuffle
from consumer.layers.silver.tasks import ROW, lost_table
from consumer.layers.silver.verdicts import IN_SILVER, decide
from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings
from lakeproof.tables.names import DECIDED_AT


@given(streams(), streams(), st.integers(1, 9), st.integers(1, 4), st.sampled_from([None, 0, 6, 10]), st.randoms())
def test_buckets_decide_as_one(
    bronze: list[Row], silver: list[Row], buckets: int, parts: int, hour: int | None, chance: random.Random
) -> None:
    """The number of buckets and parts, and the order of rows from tasks, make no difference."""
    number_of = [chance.randrange(parts) for _ in bronze]  # the part of each row
    horizons = {row.micro_batch: None if hour is None else hour * 3_600_000_000 for row in bronze}
    of_parts = [[row for row, of in zip(bronze, number_of, strict=True) if of == part] for part in range(parts)]
    whole = pa.concat_tables([*map(narrow, of_parts), narrow(silver, in_silver=True)])
    expected = lost_table(decide(whole, horizons)).to_pylist()

    shuffled: list[list[pa.RecordBatch]] = [[] for _ in range(buckets)]
    for part, compared in (*enumerate(map(narrow, of_parts)), (IN_SILVER, narrow(silver, in_silver=True))):
        first = 0
        for batch in compared.to_batches(max_chunksize=2):
            for bucket, mine in shuffle.in_buckets(batch, part, first, buckets):
                shuffled[bucket].append(mine)
            first += batch.num_rows
    lost: dict[int, list[Any]] = {}
    decided: Any = SimpleNamespace(horizons=horizons)
    for batches in shuffled:
        chance.shuffle(batches)
        for part, found in shuffle.verdicts(batches, decided):
            lost.setdefault(part, []).extend(found.to_pylist())
    found, first = [], 0
    for part, of_part in enumerate(of_parts):
        hashes = narrow(of_part)["_content_hash"].to_pylist()
        for each in sorted(lost.pop(part, []), key=lambda row: row[ROW]):
            assert each.pop("_content_hash") == hashes[each[ROW]]
            found.append(each | {ROW: first + each[ROW]})
        first += len(of_part)
    assert found == expected
    assert not lost


@pytest.mark.all
@pytest.mark.spark
def test_tables_and_ledger_are_those_of_the_driver(
    lake_settings: Settings, drain_directly: Drain, session_of: SessionOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silver is empty, then has rows; parts have several micro-batches, and there are more buckets than parts."""
    monkeypatch.setattr("consumer.iceberg.scan.SMALL_ROWS", 0)
    monkeypatch.setattr("consumer.iceberg.scan._BYTES_PER_TASK", 1)
    monkeypatch.setattr(shuffle, "_ROWS_PER_BUCKET", 30)
    chance, spark = random.Random(0), session_of(lake_settings)
    in_driver = silver_layer(lake_settings)
    in_tasks = silver_layer(changed(lake_settings, LAKE_SILVER_DRIVER_ROWS=0)).beside("_tasks")
    for layer in (in_driver, in_tasks):
        layer.prepare(open_catalog(lake_settings))
    for turn in range(2):
        for number in range(3 * turn, 3 * turn + 3):
            for file in range(2):
                times = [NOON + days(3 * number - chance.choice((0, 1, 5, 9, 20))) for _ in range(12)]
                events = [(f"e{chance.randint(0, 25)}", at, chance.choice("aab")) for at in times]
                land(lake_settings, f"{number}-{file}.json", *events, *events[:3])
            drain_directly(lake_settings)
        for layer in (in_driver, in_tasks):
            assert take_all(spark, lake_settings, layer) == 1
        for table in in_driver.tables:
            assert rows_of(lake_settings, table) == rows_of(lake_settings, f"{table}_tasks"), table
    verdicts = {verdict for verdict, _ in check(lake_settings).values()}
    assert verdicts == {"kept", "duplicates", "conflicts", "late"}


def rows_of(settings: Settings, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table, without the time at which they were decided."""
    found = [{name: value for name, value in row.items() if name != DECIDED_AT} for row in rows(settings, table)]
    return sorted(found, key=str)
