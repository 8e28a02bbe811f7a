"""Logins at a REST catalog: a token, or a credential for tokens that expire."""

from collections.abc import Callable, Iterator

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from tests.lakes import changed
from tests.rest_login import CLIENT, SECRET, TOKEN_PATHS, LoginProxy, SignedProxy
from tests.servers import RestCatalogServer

from lakeproof.catalog import io_for_tasks, open_catalog, pyiceberg_properties, spark_properties
from lakeproof.connect.snippets import Client, snippet
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.settings import Settings, settings_of

REST = {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": "http://catalog"}


@pytest.fixture(scope="module")
def lasting_server(
    start_rest_catalog: Callable[..., RestCatalogServer], tmp_path_factory: pytest.TempPathFactory
) -> RestCatalogServer:
    folder = tmp_path_factory.mktemp("rest-login")
    return start_rest_catalog(folder / "rest", (folder / "warehouse").as_uri())


@pytest.fixture
def server(lasting_server: RestCatalogServer) -> Iterator[RestCatalogServer]:
    """An empty REST catalog."""
    yield lasting_server
    catalog = open_catalog(settings_of({"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": lasting_server.uri}))
    for namespace in catalog.list_namespaces():
        for table in catalog.list_tables(namespace):
            catalog.drop_table(table)
        catalog.drop_namespace(namespace)


@pytest.fixture
def login(server: RestCatalogServer) -> Iterator[LoginProxy]:
    proxy = LoginProxy(server.uri, seconds=600)
    yield proxy
    proxy.close()


def test_both_clients_get_the_login() -> None:
    own = {
        "LAKE_CATALOG_CREDENTIAL": "me:a:b",
        "LAKE_CATALOG_OAUTH2_URI": "https://idp/token",
        "LAKE_CATALOG_SCOPE": "all",
    }
    expected = {"credential": "me:a:b", "oauth2-server-uri": "https://idp/token", "scope": "all"}
    settings = settings_of(REST | own)
    assert expected.items() <= pyiceberg_properties(settings).items()
    of_spark = spark_properties(settings)
    assert {f"spark.sql.catalog.lake.{name}": value for name, value in expected.items()}.items() <= of_spark.items()
    assert of_spark["spark.sql.catalog.lake.token-exchange-enabled"] == "true"
    without = spark_properties(settings_of(REST | own | {"LAKE_CATALOG_TOKEN_EXCHANGE": "false"}))
    assert without["spark.sql.catalog.lake.token-exchange-enabled"] == "false"
    assert pyiceberg_properties(settings_of(REST | {"LAKE_CATALOG_TOKEN": "t"}))["token"] == "t"
    assert not {"token", "credential", "scope"} & pyiceberg_properties(settings_of(REST)).keys()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"LAKE_CATALOG_TOKEN": "t"}, "LAKE_CATALOG_TOKEN: it is for a REST catalog only"),
        ({**REST, "LAKE_CATALOG_CREDENTIAL": "me"}, "expected CLIENT_ID:SECRET"),
        ({**REST, "LAKE_CATALOG_CREDENTIAL": "me:it", "LAKE_CATALOG_TOKEN": "t"}, "LAKE_CATALOG_TOKEN is set, too"),
        ({**REST, "LAKE_CATALOG_OAUTH2_URI": "https://idp/token"}, "LAKE_CATALOG_OAUTH2_URI: it is for LAKE_C"),
        ({**REST, "LAKE_CATALOG_TOKEN": "t", "LAKE_CATALOG_SCOPE": "a"}, "LAKE_CATALOG_SCOPE: it is for LAKE_C"),
        ({**REST, "LAKE_CATALOG_TOKEN_EXCHANGE": "false"}, "LAKE_CATALOG_TOKEN_EXCHANGE: it is for LAKE_CATALOG_CRE"),
        ({"LAKE_CATALOG_TOKEN_EXCHANGE": "false"}, "LAKE_CATALOG_TOKEN_EXCHANGE: it is for a REST catalog only"),
        ({**REST, "LAKE_CATALOG_CREDENTIAL": "me", "LAKE_CATALOG_SCOPE": "a"}, "CREDENTIAL: expected CLIENT_ID:SECRET"),
        ({**REST, "LAKE_CATALOG_SIGV4": "glue", "LAKE_CATALOG_TOKEN": "t"}, "LAKE_CATALOG_TOKEN is set, too"),
        (
            {**REST, "LAKE_CATALOG_SIGV4": "glue", "LAKE_CATALOG_CREDENTIAL": "a:b"},
            "LAKE_CATALOG_CREDENTIAL is set, to",
        ),
        ({**REST, "LAKE_CATALOG_SIGV4": "glue", "LAKE_CATALOG_SCOPE": "a"}, "LAKE_CATALOG_SCOPE: it is for LAKE_C"),
        ({"LAKE_CATALOG_SIGV4": "glue"}, "LAKE_CATALOG_SIGV4: it is for a REST catalog only"),
        ({**REST, "LAKE_CATALOG_OAUTH2_URI": "idp"}, "LAKE_CATALOG_OAUTH2_URI: 'idp' is not the address"),
    ],
)
def test_a_login_that_makes_no_sense_is_refused(variables: dict[str, str], expected: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings_of(variables)
    assert expected in refused.value.message


@pytest.mark.parametrize("path", TOKEN_PATHS)
def test_a_token_is_renewed_and_shared(login: LoginProxy, lake_settings: Settings, path: str) -> None:
    own = login.settings | {"LAKE_CATALOG_OAUTH2_URI": None if path == TOKEN_PATHS[0] else login.uri + path}
    settings = changed(lake_settings, LAKE_WAREHOUSE=None, **own)
    open_catalog(settings).create_namespace("bronze")
    first = login.grants.total()  # PyIceberg requests one token for the configuration, and one for the rest
    assert open_catalog(settings).list_namespaces() == [("bronze",)]
    assert login.grants == {"client_credentials": first}
    login.expire()
    assert open_catalog(settings).list_namespaces() == [("bronze",)]
    assert login.expired == 1
    assert login.grants == {"client_credentials": first + 1}
    login.expire()
    assert not open_catalog(settings).table_exists("bronze.events")  # by HEAD
    assert open_catalog(settings).list_namespaces() == [("bronze",)]
    assert login.expired == 2


def test_a_login_that_is_refused_is_said_without_its_secret(login: LoginProxy, lake_settings: Settings) -> None:
    settings = changed(lake_settings, **login.settings | {"LAKE_CATALOG_CREDENTIAL": f"{CLIENT}:wrong-{SECRET}"})
    with pytest.raises(UnavailableError) as refused:
        open_catalog(settings)
    assert "the login" in refused.value.hint
    assert SECRET not in f"{refused.value.message} {refused.value.hint}"
    settings = changed(lake_settings, LAKE_CATALOG="rest", LAKE_CATALOG_URI=login.uri, LAKE_CATALOG_TOKEN="made-up")
    with pytest.raises(UnavailableError) as refused:
        open_catalog(settings)
    assert "Not authorized" in refused.value.message


def test_a_token_is_enough(login: LoginProxy, lake_settings: Settings) -> None:
    token = login.new_token()
    settings = changed(lake_settings, LAKE_CATALOG="rest", LAKE_CATALOG_URI=login.uri, LAKE_CATALOG_TOKEN=token)
    assert open_catalog(settings).list_namespaces() == []
    assert not login.grants


SIGNED = {
    "LAKE_CATALOG_SIGV4": "glue",
    "AWS_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "secret-of-glue",
    "AWS_SESSION_TOKEN": "token-of-glue",
}


def test_all_clients_get_what_they_sign_with() -> None:
    settings = settings_of(REST | SIGNED)
    of_pyiceberg, of_spark = pyiceberg_properties(settings), spark_properties(settings)
    signing = {"rest.signing-name": "glue", "rest.signing-region": "eu-central-1"}
    names = {"access-key-id": "id", "secret-access-key": "secret-of-glue", "session-token": "token-of-glue"}
    expected = signing | {"rest.sigv4-enabled": "true"} | {f"client.{name}": value for name, value in names.items()}
    assert expected.items() <= of_pyiceberg.items()
    expected = signing | {"rest.auth.type": "sigv4"} | {f"rest.{name}": value for name, value in names.items()}
    assert {f"spark.sql.catalog.lake.{name}": value for name, value in expected.items()}.items() <= of_spark.items()
    assert "rest.auth.type" not in pyiceberg_properties(settings_of(REST))
    without = settings_of(REST | {"LAKE_CATALOG_SIGV4": "glue"})  # clients find the keys themselves
    assert not [name for name in pyiceberg_properties(without) if "access-key" in name]
    for each, keys in ((settings, "KEY_ID"), (without, "PROVIDER credential_chain")):
        of_duckdb = snippet(each, Client.DUCKDB, "bronze.events", served=False)
        assert "ENDPOINT 'http://catalog', AUTHORIZATION_TYPE 'sigv4', SECRET lake_s3)" in of_duckdb
        assert f"SECRET lake_s3 (TYPE s3, REGION '{each.s3.region}', {keys}" in of_duckdb
        assert "secret-of-glue" not in of_duckdb


def test_a_request_is_signed(server: RestCatalogServer, lake_settings: Settings) -> None:
    proxy = SignedProxy(server.uri, "glue", "eu-central-1", "id", "secret-of-glue")
    own = SIGNED | {"LAKE_CATALOG": "rest", "LAKE_CATALOG_URI": proxy.uri, "LAKE_WAREHOUSE": None}
    catalog = open_catalog(changed(lake_settings, **own))
    catalog.create_namespace("bronze", {"why": "a body that is signed as well"})
    assert catalog.list_namespaces() == [("bronze",)]
    assert proxy.clients["refused"] == 0
    assert proxy.clients.total() > 2
    table = catalog.create_table("bronze.t", Schema(NestedField(1, "n", LongType(), required=False)))
    assert "secret-of-glue" in str(table.io.properties)
    assert "-of-glue" not in str(io_for_tasks(table.io).properties)
    for wrong in ({"AWS_SECRET_ACCESS_KEY": "other"}, {"AWS_REGION": "us-east-1"}, {"LAKE_CATALOG_SIGV4": "s3tables"}):
        with pytest.raises(UnavailableError) as refused:
            open_catalog(changed(lake_settings, **own | wrong))
        assert "signature does not match" in refused.value.message
    proxy.close()
