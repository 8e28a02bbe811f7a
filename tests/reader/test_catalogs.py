"""Reading the embedded catalog directly gives the same results as PyIceberg."""

import gzip
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lakeproof.addresses import sqlite_path
from lakeproof.catalog import CATALOG, open_catalog
from lakeproof.contracts import load_contract
from lakeproof.settings import Settings
from lakeproof.storage.local import local_path
from lakeproof.tables.schemas import bronze_schema, ensure_tables
from reader.catalogs import EmbeddedCatalog, OtherCatalog, catalog_of


def file_of(settings: Settings) -> Path:
    file = sqlite_path(settings.catalog.uri)
    assert file is not None
    return file


def test_it_answers_as_pyiceberg_does(lake: Settings) -> None:
    own, other = catalog_of(lake), OtherCatalog(lake)
    assert isinstance(own, EmbeddedCatalog)
    assert own.namespaces(()) == sorted(other.namespaces(()))
    assert ("bronze",) in own.namespaces(())
    assert own.namespaces(("bronze",)) == other.namespaces(("bronze",)) == []
    assert own.namespaces(("nope",)) == other.namespaces(("nope",)) == []
    for namespace in (*own.namespaces(()), ("nope",)):
        assert sorted(own.tables(namespace)) == sorted(other.tables(namespace))
        for name in own.tables(namespace):
            assert own.metadata(namespace, name) == other.metadata(namespace, name)
    assert own.metadata(("bronze",), "nope") is other.metadata(("bronze",), "nope") is None
    assert own.metadata(("nope",), "events") is other.metadata(("nope",), "events") is None


def test_namespaces_of_several_levels_views_and_compressed_metadata(lake_settings: Settings) -> None:
    catalog = open_catalog(lake_settings)
    for namespace in ("one", "one.two", "one.two.three"):
        catalog.create_namespace(namespace)
    schema = bronze_schema(load_contract(lake_settings.contracts, "events"))
    table = catalog.create_table("one.two.events", schema)
    packed = Path(str(local_path(table.metadata_location)).replace(".metadata.json", ".gz.metadata.json"))
    packed.write_bytes(gzip.compress(local_path(table.metadata_location).read_bytes()))
    with closing(sqlite3.connect(file_of(lake_settings))) as connection, connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (f"file:{packed}",))
        view = (CATALOG, "one.two", "seen", f"file://{packed}", "VIEW")
        columns = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
        connection.execute(f"INSERT INTO iceberg_tables ({columns}) VALUES (?, ?, ?, ?, ?)", view)
    own, other = catalog_of(lake_settings), OtherCatalog(lake_settings)
    for parent, below in (((), [("one",)]), (("one",), [("one", "two")]), (("one", "two"), [("one", "two", "three")])):
        assert own.namespaces(parent) == other.namespaces(parent) == below
    assert own.tables(("one", "two")) == other.tables(("one", "two")) == ["events"]
    assert own.metadata(("one", "two"), "seen") is None
    found = own.metadata(("one", "two"), "events")
    assert found == other.metadata(("one", "two"), "events")
    assert found is not None
    assert found[1].startswith("{")


def test_a_catalog_without_tables_is_empty_and_none_is_made(lake_settings: Settings) -> None:
    file, catalog = file_of(lake_settings), catalog_of(lake_settings)
    for _ in ("no file", "an empty one"):
        assert catalog.namespaces(()) == catalog.tables(("bronze",)) == []
        assert catalog.metadata(("bronze",), "events") is None
        size = file.stat().st_size if file.exists() else None
        assert not size
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


@pytest.mark.all
def test_a_statement_imports_neither_pyiceberg_nor_sqlalchemy(
    lake_settings: Settings, reader_environment: Callable[[Settings], dict[str, str]]
) -> None:
    """They take longer to import than the statement takes to run."""
    ensure_tables(open_catalog(lake_settings), load_contract(lake_settings.contracts, "events"))
    command = [sys.executable, "-X", "importtime", "-m", "reader", "sql", "SELECT count(*) AS n FROM bronze.events"]
    done = subprocess.run(
        [*command, "--format", "csv"],
        env=reader_environment(lake_settings),
        cwd=lake_settings.home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "n\n0\n"
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "duckdb" in imported
    assert imported.isdisjoint({"pyiceberg", "sqlalchemy", "pyarrow"})
