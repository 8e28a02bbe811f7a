"""PyIceberg in a local warehouse whose folder has a name that is invalid in a URL."""

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakeproof.catalog import open_catalog
from lakeproof.file_io import PlainFileIO
from lakeproof.settings import settings_of


@pytest.mark.parametrize("slashes", ["/", "///"])
def test_a_local_path_is_taken_as_it_is(slashes: str) -> None:
    assert PlainFileIO.parse_location(f"file:{slashes}a b#c?d%20e") == ("file", "", "/a b#c?d%20e")


@pytest.mark.parametrize("location", ["s3://bucket/key", "/a/b", "hdfs://host/a"])
def test_all_else_is_taken_as_pyiceberg_does(location: str) -> None:
    assert PlainFileIO.parse_location(location) == PyArrowFileIO.parse_location(location)


def test_a_table_lies_in_the_folder_of_its_name(tmp_path: Path) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    home = tmp_path / "a b#c?d%20e"
    catalog = open_catalog(settings_of({"LAKE_HOME": home}))
    catalog.create_namespace("bronze")
    catalog.create_table("bronze.t", Schema(NestedField(1, "a", LongType())))
    assert catalog.load_table("bronze.t").schema().column_names == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == [home.name]
    assert list((home / "warehouse" / "bronze" / "t" / "metadata").glob("*.metadata.json"))
