"""The same lake works on every catalog: SQLite, Postgres and REST, with the warehouse in local folders and on MinIO."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from tests.consumer.lake import SessionOf, rows
from tests.consumer.taking import layer_queries
from tests.lakes import changed
from tests.rest_login import EXCHANGE, LoginProxy, SignedProxy
from tests.servers import PASSWORD, PostgresServer, RestCatalogServer

from consumer.queries.application import run_queries
from consumer.queries.bronze import BronzeQuery
from consumer.queries.trigger import Trigger
from lakeproof.catalog import open_catalog
from lakeproof.contracts import load_contract
from lakeproof.gold.product_file import load_product
from lakeproof.settings import Settings
from lakeproof.storage import open_storage
from reader.connect import connect
from reader.verify.driver import verify

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
_MOST_TOKENS = 40
_TOKEN_SECONDS = 10
EVENT = {
    "user_id": "u1",
    "event_timestamp": "2026-11-21T06:00:00Z",
    "event_type": "page_view",
    "properties": {"url": "https://example.com"},
}


def on_sqlite(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    return settings


def on_postgres(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Return settings with catalog and landing log in one database, whose password has every awkward character."""
    server: PostgresServer = request.getfixturevalue("postgres")
    uri = server.new_database(PASSWORD)
    return changed(settings, LAKE_CATALOG_URI=uri, LAKE_LANDING_LOG_URI=uri)


@pytest.fixture
def logins() -> Iterator[list[LoginProxy]]:
    """Yield a list for REST catalog logins; check that each needs few tokens, though many places open the catalog."""
    with ExitStack() as stack:
        found: list[LoginProxy] = []
        began = time.monotonic()
        yield found
        for login in found:
            stack.callback(login.close)
        for login in found:
            assert login.grants["client_credentials"]
            assert login.grants["refused"] == 0
            logins, renewals = login.grants["client_credentials"], login.grants[EXCHANGE]
            # A slow test renews more of them: PyIceberg by a login, Spark's clients at nine tenths of a token's time.
            lifetimes = (time.monotonic() - began) / _TOKEN_SECONDS
            assert logins < _MOST_TOKENS + lifetimes
            assert renewals <= logins * (1 + lifetimes / 0.9)


def on_rest(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Return settings of a server that requires a login, issues short-lived tokens, and alone knows the warehouse."""
    start: Callable[..., RestCatalogServer] = request.getfixturevalue("start_rest_catalog")
    server = start(settings.home / "rest", settings.catalog.warehouse_uri, settings.s3)
    login = LoginProxy(server.uri, seconds=_TOKEN_SECONDS, leeway=5)
    request.getfixturevalue("logins").append(login)
    return changed(settings, LAKE_WAREHOUSE=None, **login.settings)


def on_signed_rest(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Return settings of a server that requires signed requests, as AWS Glue does."""
    start: Callable[..., RestCatalogServer] = request.getfixturevalue("start_rest_catalog")
    server = start(settings.home / "rest", settings.catalog.warehouse_uri, settings.s3)
    keys = {"AWS_ACCESS_KEY_ID": "id-of-glue", "AWS_SECRET_ACCESS_KEY": "secret-of-glue", "AWS_REGION": "eu-central-1"}
    proxy = SignedProxy(server.uri, "glue", keys["AWS_REGION"], "id-of-glue", "secret-of-glue")
    request.addfinalizer(proxy.close)
    request.addfinalizer(lambda: _check_signed(proxy))
    own = {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": proxy.uri, "LAKE_CATALOG_SIGV4": "glue"}
    return changed(settings, LAKE_WAREHOUSE=None, **own, **keys)


def _check_signed(proxy: SignedProxy) -> None:
    assert proxy.clients["refused"] == 0
    assert len(proxy.clients.keys() - {"refused"}) == 2, proxy.clients  # the clients of Spark and PyIceberg


CATALOGS = {"sqlite": on_sqlite, "postgres": on_postgres, "rest": on_rest}


@pytest.fixture(params=CATALOGS)
def local_lake(request: pytest.FixtureRequest, lake_settings: Settings) -> Settings:
    return CATALOGS[request.param](request, lake_settings)


@pytest.fixture(
    params=[
        pytest.param(
            f"{catalog} {storage}",
            marks=[pytest.mark.s3] * (storage == "s3")
            + [pytest.mark.long] * (f"{catalog} {storage}" not in ("postgres s3", "rest local")),
        )
        for storage in ("local", "s3")
        for catalog in CATALOGS
    ]
    + [pytest.param("signed local", marks=pytest.mark.long)]
)
def lake(request: pytest.FixtureRequest) -> Settings:
    catalog, storage = request.param.split()
    settings: Settings = request.getfixturevalue({"local": "lake_settings", "s3": "s3_lake_settings"}[storage])
    return (CATALOGS | {"signed": on_signed_rest})[catalog](request, settings)


def land(settings: Settings, name: str, count: int) -> None:
    """Land a file of `count` good events and a bad one."""
    records: list[Any] = [EVENT | {"event_id": f"{name}-{number}"} for number in range(count)]
    storage = open_storage(settings.landing.uri, settings.s3)
    storage.write_new(f"{settings.landing.uri}/events/{name}.json", json.dumps([*records, {"bad": True}]).encode())


def counted(settings: Settings) -> list[int]:
    """Count the rows of bronze, dead letters and ledger in DuckDB."""
    with connect(settings) as session:
        tables = ("bronze.events", "dead_letters.events", "ledger.events")
        return [session.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in tables]


@pytest.mark.all
def test_all_layers_run_from_landing_to_reader(lake: Settings, session_of: SessionOf) -> None:
    product = load_product(ROOT / "gold", "user_activity", lambda stream: load_contract(lake.contracts, stream))
    settings = changed(lake, LAKE_SETTLE_SECONDS=0)
    trigger = Trigger(available_now=True)
    names = ", ".join(["window_start", "window_end", "user_id", *(measure.name for measure in product.measures)])
    for expected, files, name in ((3, 1, "a"), (6, 2, "b")):
        land(lake, name, 3)
        queries = [
            BronzeQuery(settings, "events", trigger),
            *layer_queries(settings, "events", trigger, [product]),
        ]
        run_queries(settings, queries, lambda: session_of(settings), available_now=True)
        assert counted(lake) == [expected, files, files]
        with connect(lake) as session:
            result = session.sql(f"SELECT {names} FROM gold.user_activity")
            assert result is not None
            at = datetime(2026, 11, 21, 6, tzinfo=UTC)
            assert result.fetchall() == [(at, at + timedelta(hours=1), "u1", expected, 0, None, 0)]
        [row] = rows(lake, "gold.user_activity")
        assert row["event_count"] == expected
    (found,) = verify(lake, "events", values=True)
    assert not found.off
    assert sorted(row["event_id"] for row in rows(lake, "bronze.events")) == [
        f"{name}-{number}" for name in "ab" for number in range(3)
    ]


@pytest.mark.all
def test_appends_that_race_are_each_there_once(local_lake: Settings, session_of: SessionOf) -> None:
    catalog = open_catalog(local_lake)
    catalog.create_namespace("race")
    # By default, Spark gives up after five attempts: a slow one may lose to each of the other appends.
    retries = {"commit.retry.num-retries": "20"}
    catalog.create_table("race.appends", Schema(NestedField(1, "n", LongType(), required=False)), properties=retries)
    sessions = [session_of(local_lake), session_of(local_lake)]
    ready = Barrier(3)

    def spark_appends(writer: int) -> None:
        ready.wait(60)
        for number in range(4):
            sessions[writer].sql(f"INSERT INTO lake.race.appends VALUES ({writer * 100 + number})").collect()

    def pyiceberg_appends() -> None:
        own = open_catalog(local_lake)
        ready.wait(60)
        for number in range(200, 204):
            while not appended(own, number):
                pass

    def appended(own: Catalog, number: int) -> bool:
        with suppress(CommitFailedException):  # the second committer gets an error, and retries on the new state
            own.load_table("race.appends").append(pa.table({"n": [number]}))
            return True
        return False

    with ThreadPoolExecutor() as pool:
        racing = [pool.submit(spark_appends, 0), pool.submit(spark_appends, 1), pool.submit(pyiceberg_appends)]
    for each in racing:
        each.result()
    table = catalog.load_table("race.appends")
    expected = [writer * 100 + number for writer in range(3) for number in range(4)]
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == expected
    assert len(table.history()) == len(expected)


@pytest.mark.all
@pytest.mark.parametrize(
    ("version", "codec"),
    [
        pytest.param(2, "none", marks=pytest.mark.long),
        pytest.param(3, "none", marks=pytest.mark.long),
        (3, "gzip"),
    ],
)
def test_deleted_rows_are_gone_for_every_engine(
    local_lake: Settings, session_of: SessionOf, version: int, codec: str
) -> None:
    catalog = open_catalog(local_lake)
    spark = session_of(local_lake)
    spark.sql("CREATE NAMESPACE lake.upserts")
    spark.sql(
        "CREATE TABLE lake.upserts.t (n bigint, s string) USING iceberg TBLPROPERTIES ("
        f"'format-version' = '{version}', 'write.delete.mode' = 'merge-on-read', "
        f"'write.metadata.compression-codec' = '{codec}')"
    )
    spark.sql("INSERT INTO lake.upserts.t SELECT id, 'é' || id FROM range(0, 1000, 1, 1)")
    spark.sql("DELETE FROM lake.upserts.t WHERE n % 10 = 3")
    kinds = spark.sql("SELECT DISTINCT file_format FROM lake.upserts.t.delete_files").collect()
    assert [kind.file_format for kind in kinds] == (["PUFFIN"] if version == 3 else ["PARQUET"])
    assert catalog.load_table("upserts.t").metadata_location.endswith(".gz.metadata.json") == (codec == "gzip")
    with connect(local_lake) as session:
        result = session.sql("SELECT count(*), count(*) FILTER (n % 10 = 3), max(s) FROM upserts.t")
        assert result is not None
        assert result.fetchall() == [(900, 0, "é999")]
    assert len(rows(local_lake, "upserts.t")) == 900
