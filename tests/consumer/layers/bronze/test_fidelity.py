"""Landed values can be read back exactly with Spark, PyIceberg and DuckDB, as docs/json-types.md defines."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, Inexact
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, strategies
from hypothesis import settings as hypothesis_settings
from pyarrow import parquet
from pyspark.sql import Column, SparkSession, functions
from pyspark.sql.types import DataType, DecimalType, StructType, TimestampType
from tests.consumer.lake import Drain
from tests.consumer.layers.bronze.records import EXPLICIT, Record, exact, record, records
from tests.lakeproof.judge.test_json_types import shown
from tests.pages import blocks
from tests.selection import examples, only_with_all

from consumer.iceberg import nulls
from lakeproof.catalog import open_catalog
from lakeproof.settings import Settings, settings_of
from reader.connect import connect

pytestmark = [pytest.mark.spark, pytest.mark.hypothesis]  # the records are drawn once for all tests

ROOT = Path(__file__).parents[4]
BRONZE, DEAD_LETTERS = "bronze.everything", "dead_letters.everything"
EXAMPLES, IN_EXAMPLE = examples(30), 20
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REFUSED: dict[str, list[tuple[str, str]]] = {
    '{"id":"a","id":"a","at":"2026-11-21T12:30:00Z"}': [("duplicate_key", "$.id")],
    '{"id":"a","at":"2026-11-21T12:30:00Z","object":{"string":"a","string":"b"}}': [
        ("duplicate_key", "$.object.string")
    ],
    '{"id":"a","at":"2026-11-21T12:30:00Z","object":{"inner":{"long":1,"lon\\u0067":1}}}': [
        ("duplicate_key", "$.object.inner.long")
    ],
    '{"id":"a","at":"2026-11-21T12:30:00Z","objects":[{},{"counts":{"a":1,"b":2,"a":1}}]}': [
        ("duplicate_key", "$.objects[1].counts.a")
    ],
    '{"id":"a","at":"2026-11-21T12:30:00Z","map":{"a":1,"A":2,"a":1}}': [("duplicate_key", "$.map.a")],
    '{"id":"a","Id":"b","at":"2026-11-21T12:30:00Z"}': [("unknown_field", "$.Id")],
    '{"id":"a","at":"2026-11-21T12:30:00Z","object":{"String":"a","string":"b"}}': [
        ("unknown_field", "$.object.String")
    ],
}
"""Keys that are repeated, or differ from a field by case only, and the reasons."""


TEXT = (ROOT / "docs" / "json-types.md").read_text("utf-8")
TYPES = {"decimal(38,10)": "decimal", "decimal(9,2)": "price", "map of scalar": "map", "array of long": "array"}


def page() -> list[tuple[str, str | None, str]]:
    """Return column, token (None: the field is missing) and value text of each line under "What you get back"."""
    found = []
    for line in TEXT.partition("| what | type | landed | back |\n")[2].splitlines()[1:]:
        if not line.startswith("|"):
            break
        _, kind, landed, back = (cell.strip() for cell in line.strip("|").split("|"))
        token = None if landed == "(absent)" else landed.strip("`")
        found.append((TYPES.get(kind, kind), token, "" if back == "(empty)" else back.strip("`")))
    return found


PAGE = page()


@dataclass(frozen=True)
class Landed:
    """A lake in which records have landed, and the records by place."""

    settings: Settings
    spark: SparkSession
    bronze: dict[tuple[str, int], Record]
    refused: dict[tuple[str, int], str]
    page: str


@pytest.fixture(scope="module")
def landed(
    tmp_path_factory: pytest.TempPathFactory, drain_directly: Drain, session_of: Callable[[Settings], SparkSession]
) -> Landed:
    """Consume the explicit records, and some hundreds drawn by Hypothesis, together."""
    settings = settings_of(
        {
            "LAKE_HOME": tmp_path_factory.mktemp("lake"),
            "LAKE_CONTRACTS": tmp_path_factory.mktemp("contracts"),
            "LAKE_JARS": ROOT / "target" / "jars" / "spark",
        }
    )
    shutil.copy(Path(__file__).parent / "everything.yaml", settings.contracts)
    folder = settings.home / "landing" / "everything"
    folder.mkdir(parents=True)
    bronze: dict[tuple[str, int], Record] = {}
    explicit = [record(*each) for each in EXPLICIT]
    for path, found in ((folder / "explicit.json", explicit), (folder / "drawn.json", drawn())):
        path.write_text(f"[{','.join(each.text for each in found)}]", "utf-8")
        bronze |= {(path.name, position): each for position, each in enumerate(found)}
    refused, page = folder / "refused.json", folder / "page.json"
    refused.write_text("\n".join(REFUSED), "utf-8")
    page.write_text(f"[{','.join(record(column, token).text for column, token, _ in PAGE)}]", "utf-8")
    drain_directly(settings, "everything")
    places = {(refused.name, number): text for number, text in enumerate(REFUSED)}
    return Landed(settings, session_of(settings), bronze, places, page.name)


def drawn() -> list[Record]:
    """Return records drawn by Hypothesis; not shrunk, since all are judged together."""
    found: list[Record] = []

    @hypothesis_settings(
        max_examples=EXAMPLES,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    # With one record at a time, most would be copies of an earlier one.
    @given(strategies.lists(records, min_size=IN_EXAMPLE, max_size=IN_EXAMPLE))
    def keep(example: list[Record]) -> None:
        found.extend(example)

    keep()
    assert len({each.text for each in found}) > EXAMPLES * IN_EXAMPLE / 6  # more than 100 of them with ALL=1
    return found


Rows = list[dict[str, Any]]


def spark_collect(landed: Landed, table: str) -> Rows:
    """Return Spark's rows, read without any loss on the way to Python.

    Times are read as microseconds, since Spark would return local times without a zone. Decimals are brought to the
    scale of their column, exactly, since Spark returns 1E-10 as 100E-12.
    """
    frame = landed.spark.table(f"lake.{table}")
    chosen = [_micros(frame[field.name], field.dataType).alias(field.name) for field in frame.schema]
    return [_typed(row.asDict(recursive=True), frame.schema) for row in frame.select(chosen).collect()]


def _micros(column: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return functions.unix_micros(column)
    for field in kind if isinstance(kind, StructType) else []:
        column = column.withField(field.name, _micros(column[field.name], field.dataType))
    return column


def _typed(value: Any, kind: DataType) -> Any:
    if value is not None and isinstance(kind, TimestampType):
        return EPOCH + timedelta(microseconds=value)
    if value is not None and isinstance(kind, DecimalType):
        return value.quantize(Decimal((0, (1,), -kind.scale)), context=Context(kind.precision, traps=[Inexact]))
    if value is not None and isinstance(kind, StructType):
        return {field.name: _typed(value[field.name], field.dataType) for field in kind}
    return value


def spark_arrow(landed: Landed, table: str) -> Rows:
    rows: Rows = landed.spark.table(f"lake.{table}").toArrow().to_pylist(maps_as_pydicts="strict")
    return rows


def pyiceberg(landed: Landed, table: str) -> Rows:
    """Read as in any process: earlier tests may have made PyIceberg keep nulls in this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyiceberg.io.pyarrow.ArrowProjectionVisitor", nulls._KeepsNulls.__base__)
        found = open_catalog(landed.settings).load_table(table).scan().to_arrow()
    rows: Rows = found.to_pylist(maps_as_pydicts="strict")
    return rows


def pyiceberg_files(landed: Landed, table: str) -> Rows:
    """Read the files that PyIceberg plans to scan with pyarrow alone."""
    found = open_catalog(landed.settings).load_table(table)
    rows: Rows = []
    for task in found.scan().plan_files():
        with found.io.new_input(task.file.file_path).open() as file:
            rows += parquet.read_table(file).to_pylist(maps_as_pydicts="strict")
    return rows


def duckdb(landed: Landed, table: str) -> Rows:
    with connect(landed.settings) as session:
        found = session.connection.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def duckdb_arrow(landed: Landed, table: str) -> Rows:
    with connect(landed.settings) as session:
        arrow = session.connection.execute(f"SELECT * FROM {table}").to_arrow_table()
        return arrow.to_pylist(maps_as_pydicts="strict")


engines = pytest.mark.parametrize(
    "read", [only_with_all(spark_collect), spark_arrow, pyiceberg, pyiceberg_files, duckdb, duckdb_arrow]
)


@engines
def test_every_value_is_had_back(landed: Landed, read: Callable[[Landed, str], Rows]) -> None:
    rows = {(row["_source"], row["_position"]): row for row in read(landed, BRONZE)}
    assert {place for place in rows if place[0] != landed.page} == landed.bronze.keys()
    wrong = [
        (position, column, rows[source, position][column], value, found.text)
        for (source, position), found in landed.bronze.items()
        for column, value in found.columns.items()
        if exact(rows[source, position][column]) != exact(_as_given(read, column, value))
    ]
    assert wrong == []


def _as_given(read: Callable[[Landed, str], Rows], column: str, value: Any) -> Any:
    # PyIceberg's issue 3833: to_arrow() returns null lists and maps of objects as empty. The files have null.
    empty: dict[str, Any] = {"objects": [], "named": {}}
    return empty[column] if read is pyiceberg and column in empty and value is None else value


@engines
def test_each_line_of_the_page_is_so(landed: Landed, read: Callable[[Landed, str], Rows]) -> None:
    rows = {row["_position"]: row for row in read(landed, BRONZE) if row["_source"] == landed.page}
    assert len(rows) == len(PAGE) > 10
    assert [shown(rows[position][column]) for position, (column, _, _) in enumerate(PAGE)] == [
        back for _, _, back in PAGE
    ]


def test_what_is_absent_can_be_told_from_null_by_the_landed_file(landed: Landed) -> None:
    (statement,) = blocks("docs/json-types.md", "sql")
    statement = statement.replace(".events", ".everything").replace("product_id", "string")
    with connect(landed.settings) as session:
        found = session.connection.execute(f"{statement} AND _source = ? ORDER BY _position", [landed.page]).fetchall()
    assert found == [
        (column == "string" and token is not None,)
        for column, token, back in PAGE
        if column != "string" or back == "null"
    ]


@pytest.fixture
def utc() -> Iterator[None]:
    """Make UTC the local time of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("utc")
def test_spark_collects_times_and_decimals_as_the_page_says(landed: Landed) -> None:
    frame = landed.spark.table(f"lake.{BRONZE}")
    [row] = frame.where("timestamp = TIMESTAMP '2026-11-20T22:30:00.123456Z'").select("timestamp").collect()
    assert row.timestamp == datetime(2026, 11, 20, 22, 30, 0, 123456)  # no zone
    assert str(frame.where("decimal = 1e-10BD").select("decimal").first().decimal) == "1.00E-10"
    with pytest.raises(ValueError, match="year 0 is out of range"):
        frame.where("timestamp = TIMESTAMP '0001-01-01T00:00:00Z'").select("timestamp").collect()


@engines
def test_repeated_keys_and_other_case_are_dead_letters_with_their_bytes(
    landed: Landed, read: Callable[[Landed, str], Rows]
) -> None:
    rows = read(landed, DEAD_LETTERS)
    assert {(row["_source"], row["_position"]): bytes(row["raw"]) for row in rows} == {
        place: text.encode() for place, text in landed.refused.items()
    }
    for row in rows:
        reasons = [(reason["code"], reason["path"]) for reason in row["reasons"]]
        assert reasons == REFUSED[bytes(row["raw"]).decode()]
