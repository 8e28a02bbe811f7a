"""A catalog that takes connections and never answers: PyIceberg gives up."""

import socket
from collections.abc import Iterator

import pytest
from tests.servers import PostgresServer

from lakeproof import addresses, rest_client
from lakeproof.catalog import open_catalog
from lakeproof.errors import UnavailableError
from lakeproof.settings import settings_of
from lakeproof.state.database import open_database


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield "{}:{}".format(*server.getsockname())


@pytest.mark.parametrize("login", [{}, {"LAKE_CATALOG_CREDENTIAL": "me:it"}], ids=["no login", "token request"])
def test_a_rest_catalog(silent: str, login: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_client, "ANSWER_SECONDS", 0.1)
    settings = settings_of({"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": f"http://{silent}"} | login)
    with pytest.raises(UnavailableError, match="timed out"):
        open_catalog(settings)


def test_libpq_has_the_timeouts(postgres: PostgresServer) -> None:
    with open_database(postgres.new_database()).connect() as connection:
        driver = connection.connection.driver_connection
        assert driver
        options = driver.info.get_parameters()
    assert {name: str(value) for name, value in addresses._OF_POSTGRES.items()}.items() <= options.items()


@pytest.mark.all
def test_postgres(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(addresses._OF_POSTGRES, "connect_timeout", 2)  # libpq's shortest
    uri = f"postgresql://me:it@{silent}/lake"
    with pytest.raises(UnavailableError, match="timeout expired"):
        open_database(uri)
    with pytest.raises(UnavailableError, match="timeout expired"):
        open_catalog(settings_of({"LAKE_CATALOG_URI": uri})).list_namespaces()
