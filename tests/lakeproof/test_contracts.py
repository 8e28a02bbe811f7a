"""Assumptions of lakeproof about PyIceberg and the database drivers of catalogs, beyond their public interface."""

import inspect
import sqlite3
from pathlib import Path

import pytest
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog, SqlCatalogBaseTable
from pyiceberg.io.pyarrow import PyArrowFileIO
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from tests.servers import PostgresServer

from lakeproof.catalog import _MADE_MEANWHILE, _code_of


def codes_of_making_twice(uri: str) -> str | int | None:
    engine = create_engine(uri)
    SqlCatalogBaseTable.metadata.create_all(engine)
    with pytest.raises(DBAPIError) as caught, engine.begin() as connection:
        IcebergTables.__table__.create(connection)  # type: ignore[attr-defined]
    engine.dispose()
    return _code_of(caught.value)


def test_catalog_py_knows_sqlites_code_of_a_table_that_exists(tmp_path: Path) -> None:
    assert codes_of_making_twice(f"sqlite:///{tmp_path}/catalog.db") in _MADE_MEANWHILE
    with pytest.raises(DBAPIError) as caught:
        create_engine(f"sqlite:///{tmp_path}/no/catalog.db").connect()
    assert _code_of(caught.value) == sqlite3.SQLITE_CANTOPEN
    assert sqlite3.SQLITE_CANTOPEN not in _MADE_MEANWHILE


def test_catalog_py_knows_postgres_code_of_a_table_that_exists(postgres: PostgresServer) -> None:
    uri = postgres.new_database().replace("postgresql://", "postgresql+psycopg://", 1)
    assert codes_of_making_twice(uri) == "42P07"


def test_catalog_py_renames_tables_in_the_database_of_an_sql_catalog(tmp_path: Path) -> None:
    """Uses ``SqlCatalog.engine`` and ``IcebergTables``."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    assert catalog.engine
    assert {"catalog_name", "table_namespace", "table_name"} <= set(IcebergTables.__table__.columns.keys())


def test_file_io_py_replaces_how_locations_are_parsed() -> None:
    """Uses ``PyArrowFileIO.parse_location``, which its other methods call on the object."""
    assert list(inspect.signature(PyArrowFileIO.parse_location).parameters) == ["location", "properties"]
    assert "self.parse_location(" in inspect.getsource(PyArrowFileIO.new_input)


def test_move_py_reads_and_writes_avro_with_its_schema_and_properties() -> None:
    """Uses ``AvroFile.header.meta`` and ``AvroOutputFile``: Iceberg stores properties of a manifest there."""
    parameters = set(inspect.signature(AvroOutputFile.__init__).parameters)
    assert {"output_file", "file_schema", "schema_name", "metadata"} <= parameters
    assert {"header", "schema"} <= set(AvroFile.__slots__)
