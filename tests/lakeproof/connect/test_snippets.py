"""Snippets contain no secret of a database address, whatever part of it has the secret."""

import re
from pathlib import Path

import pytest

from lakeproof.connect.snippets import Client, snippet
from lakeproof.settings import Settings, settings_of


def of(home: Path, uri: str) -> Settings:
    return settings_of({"LAKE_HOME": str(home), "LAKE_CATALOG_URI": uri})


@pytest.mark.parametrize("client", Client)
@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://lake:s3cret@db:5432/lake?sslmode=require",
        "postgresql://db:5432/lake?user=lake&password=s3cret&sslmode=require",
        "postgresql://db:5432/lake?user=lake&pass%77ord=s3cret#&sslmode=require",
    ],
)
def test_the_password_of_an_address_is_a_reference(tmp_path: Path, client: Client, uri: str) -> None:
    text = snippet(of(tmp_path, uri), client, "bronze.events", served=False)
    assert "s3cret" not in text
    assert ("PGPASSWORD" in text) is (client is not Client.DUCKDB)  # DuckDB connects to `reader serve`


@pytest.mark.parametrize("client", [Client.PYICEBERG, Client.SPARK, Client.JUPYTER, Client.JDBC])
def test_the_passphrase_of_a_client_key_is_a_reference(tmp_path: Path, client: Client) -> None:
    uri = "postgresql://lake@db/lake?sslkey=/keys/lake.key&sslpassword=s3cret&options=-c%20search_path%3Dlake"
    text = snippet(of(tmp_path, uri), client, "bronze.events", served=False)
    assert "s3cret" not in text
    assert "PGPASSWORD" not in text
    assert "variable-" not in text
    assert re.search(r'os\.environ\[\\?"PGSSLPASSWORD\\?"\]|\$\{PGSSLPASSWORD:\?\}', text)
    assert "/keys/lake.key" in text or "%2Fkeys%2Flake.key" in text
    assert re.search(r"options=-c(%20|\+)search_path%3Dlake", text)
