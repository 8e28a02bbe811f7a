"""After a commit with a clock that was ahead, Iceberg refuses commits until that time: the error says so."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from tests.clocks import clock_off
from tests.consumer.lake import SessionOf

from consumer.iceberg.append import OpenTable, append_once, open_table
from consumer.iceberg.expire import expire
from consumer.iceberg.marker import Marker
from consumer.iceberg.rewrite import drop_branches, make_branch
from consumer.maintenance.maintain import maintain
from lakeproof.catalog import open_catalog
from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings

pytestmark = pytest.mark.spark

NAME, QUERY = "bronze.t", "bronze-t"


def marker(number: int) -> Marker:
    """Return the marker of the micro-batch from position `number` to the next one."""
    return Marker("c1", number, "digest", f"{number}:a", f"{number + 1}:a")


def add_branch(table: OpenTable) -> str:
    """Add a branch like that of a compaction."""
    return make_branch(table, int(table.loaded.currentSnapshot().snapshotId()))


WIDER = Schema(NestedField(1, "id", LongType()), NestedField(2, "other", LongType()))
COMMITS: dict[str, Callable[[OpenTable], object]] = {
    "append": lambda table: append_once(table, marker(2), []),
    "set a property": lambda table: table.set_property("some", "property"),
    "add a column": lambda table: table.widen(WIDER),
    "add a branch": add_branch,
    "drop branches": drop_branches,
    "expire snapshots": lambda table: expire(table, datetime.now(UTC) + timedelta(days=1)),
}


@pytest.mark.parametrize("last", ["snapshot", pytest.param("properties", marks=pytest.mark.all)])
def test_a_commit_with_a_clock_that_was_ahead_explains_the_failure_of_later_ones(
    session_of: SessionOf, lake_settings: Settings, last: str
) -> None:
    """Relies on Iceberg's Java library refusing metadata by the type of its exception, and on its metadata as JSON."""
    catalog = open_catalog(lake_settings)
    spark = session_of(lake_settings)
    spark.sql("create namespace lake.bronze")
    spark.sql(f"create table lake.{NAME} (id long, at timestamp) using iceberg partitioned by (days(at))")
    for number in range(2):
        append_once(open_table(spark, NAME, QUERY), marker(number), [])
    add_branch(open_table(spark, NAME, QUERY))  # maintenance drops it
    with clock_off(timedelta(hours=1)):
        if last == "snapshot":
            catalog.load_table(NAME).append(pa.table({"id": [1], "at": [datetime(2026, 11, 20, tzinfo=UTC)]}))
        else:
            with catalog.load_table(NAME).transaction() as transaction:
                transaction.set_properties({"other": "property"})
    before = catalog.load_table(NAME).metadata_location
    wrong = {}
    for what, commit in COMMITS.items():
        try:
            commit(open_table(spark, NAME, QUERY))
        except UnavailableError as error:
            if not error.message.startswith(f"Cannot commit to {NAME}: its last commit, at 2"):
                wrong[what] = error.message
        except Exception as error:  # noqa: BLE001 - whatever Java raises
            wrong[what] = f"{error!r}: {error}"
        else:
            wrong[what] = "was committed"
    assert wrong == {}
    assert catalog.load_table(NAME).metadata_location == before
    (maintained,) = maintain(lake_settings, [], lambda: session_of(lake_settings))
    assert maintained.problem.startswith(f"Cannot commit to {NAME}: its last commit, at 2")
    assert spark.table(f"lake.{NAME}").count() == (last == "snapshot")
