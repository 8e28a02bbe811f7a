"""Opening a catalog and its errors; replaced tables: atomic in an SQL catalog, one after another in a REST catalog."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.utils.config import Config
from sqlalchemy import event, text
from tests.lakes import changed
from tests.lost_answers import PostgresProxy
from tests.selection import only_with_all
from tests.servers import PASSWORD, PostgresServer, RestCatalogServer

from lakeproof.catalog import catalog_errors, database_of, open_catalog, replace_tables, table_or_none
from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings

TABLES = {"silver.a__new": "silver.a", "ledger.a__new": "ledger.a"}


@pytest.fixture
def catalog(request: pytest.FixtureRequest, lake_settings: Settings, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog of the kind named by the test, with all tables."""
    kind, settings = getattr(request, "param", "sqlite"), lake_settings
    with ExitStack() as stack:
        if kind == "rest":
            server = stack.enter_context(RestCatalogServer(tmp_path / "rest", lake_settings.catalog.warehouse_uri))
            settings = changed(lake_settings, LAKE_CATALOG="rest", LAKE_CATALOG_URI=server.uri, LAKE_WAREHOUSE=None)
        elif kind == "postgres":
            postgres: PostgresServer = request.getfixturevalue("postgres")
            settings = changed(lake_settings, LAKE_CATALOG_URI=postgres.new_database(PASSWORD))
        yield filled(open_catalog(settings))


def filled(catalog: Catalog) -> Catalog:
    """Create all tables: the old ones have a column `old`, the new ones a column `new`."""
    for new, name in TABLES.items():
        catalog.create_namespace_if_not_exists(name.split(".")[0])
        for table, column in ((name, "old"), (new, "new")):
            catalog.create_table(table, Schema(NestedField(1, column, LongType())))
    return catalog


def columns(catalog: Catalog) -> set[str]:
    """Return the columns of the tables that readers use."""
    return {name for table in TABLES.values() for name in catalog.load_table(table).schema().column_names}


def test_a_mistake_of_our_own_is_no_outage_but_one_of_a_library_may_be(catalog: Catalog) -> None:
    nothing: Any = None
    with pytest.raises(AttributeError), catalog_errors():
        table_or_none(nothing, "silver.a")
    with pytest.raises(UnavailableError, match="Cannot read the catalog: TypeError"), catalog_errors():
        catalog.load_table(nothing)


@pytest.mark.parametrize("catalog", ["postgres"], indirect=True)
def test_a_connection_that_the_server_has_closed_is_replaced(catalog: Catalog, postgres: PostgresServer) -> None:
    with database_of(catalog).connect() as connection:
        own = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    postgres.end_session(own)
    assert catalog.table_exists("silver.a")


def test_a_locked_database_is_waited_for(lake_settings: Settings) -> None:
    with database_of(open_catalog(lake_settings)).connect() as connection:
        assert connection.scalar(text("PRAGMA busy_timeout")) == 60_000


@pytest.mark.parametrize("catalog", ["sqlite", "postgres", only_with_all("rest")], indirect=True)
def test_tables_are_replaced(catalog: Catalog) -> None:
    replace_tables(catalog, TABLES)
    assert columns(catalog) == {"new"}
    assert len(catalog.list_tables("silver")) == len(catalog.list_tables("ledger")) == 1


def test_a_reader_sees_the_old_tables_until_all_are_replaced(catalog: Catalog, lake_settings: Settings) -> None:
    reader, seen = open_catalog(lake_settings), []
    look: Callable[..., None] = lambda *_: seen.append(columns(reader))  # noqa: E731 - a listener
    event.listen(database_of(catalog), "after_cursor_execute", look)
    replace_tables(catalog, TABLES)
    event.remove(database_of(catalog), "after_cursor_execute", look)
    assert seen == [{"old"}] * 4  # two tables, each deleted and renamed
    assert columns(reader) == {"new"}


@pytest.mark.parametrize("catalog", ["sqlite", "postgres"], indirect=True)
def test_all_tables_are_replaced_or_none(catalog: Catalog) -> None:
    with pytest.raises(NoSuchTableError, match=r"silver\.missing"):
        replace_tables(catalog, TABLES | {"silver.missing": "silver.b"})
    assert columns(catalog) == {"old"}


def test_a_lost_answer_is_no_error(postgres: PostgresServer, lake_settings: Settings) -> None:
    losing: list[bool] = []
    proxy = PostgresProxy(postgres.port, lambda tag: bool(losing) and tag == "COMMIT")
    uri = proxy.through(postgres.new_database(PASSWORD))
    catalog = filled(open_catalog(changed(lake_settings, LAKE_CATALOG_URI=uri)))
    losing.append(True)
    replace_tables(catalog, TABLES)
    assert proxy.lost == ["COMMIT"]
    assert columns(catalog) == {"new"}
    proxy.close()


def test_what_other_programs_configure_for_a_catalog_of_this_name_is_ignored(
    lake_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark and DuckDB would use another storage, login or warehouse than PyIceberg."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__S3__ENDPOINT", "http://elsewhere")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    assert "s3.endpoint" not in open_catalog(lake_settings).properties
