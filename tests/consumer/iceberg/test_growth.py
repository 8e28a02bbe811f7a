"""Growth of a table since its last compaction, from its metadata."""

import pytest
from pyspark.sql import SparkSession
from tests.consumer.iceberg.upserts import Upserts

from consumer.iceberg.growth import Growth, growth
from consumer.iceberg.rewrite import compact

pytestmark = pytest.mark.spark


def test_commits_and_small_files_since_the_last_compaction(spark: SparkSession) -> None:
    table = Upserts(spark)
    assert growth(table.open(), 1 << 20) == Growth()
    for number in range(3):
        table.append(number, "a", number, 24 + number)  # a file for each of two days
    found = growth(table.open(), 1 << 20)
    assert (found.commits, found.files, found.newest) == (3, 6, 3)
    assert found.bytes > 0
    assert growth(table.open(), 1).files == 0  # no file is that small
    assert growth(table.open(), 1 << 20, after=2).commits == 1
    assert growth(table.open(), 1 << 20, after=3) == Growth(3)
    assert compact(table.open(), {"min-input-files": "2"})
    assert growth(table.open(), 1 << 20).commits == 0
    table.append(3, "b", 7)
    assert growth(table.open(), 1 << 20).files == 1
