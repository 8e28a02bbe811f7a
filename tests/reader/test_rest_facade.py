"""The catalog's REST service answers its own session only, and only reads."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from lakeproof.settings import Settings
from reader.rest_facade import serve_catalog


@pytest.fixture
def endpoint(local_lake: Settings) -> Iterator[str]:
    with serve_catalog(local_lake, []) as url:
        yield url


def status(url: str, method: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_it_names_the_current_metadata(endpoint: str) -> None:
    with urllib.request.urlopen(f"{endpoint}/v1/namespaces/bronze/tables/events", timeout=60) as answer:
        table = json.load(answer)
    assert table["metadata-location"].endswith(".metadata.json")
    assert table["metadata"]["format-version"] == 2
    assert table["metadata"]["current-snapshot-id"] == table["metadata"]["snapshots"][-1]["snapshot-id"]


def test_it_listens_on_the_loopback_only(endpoint: str) -> None:
    assert urlsplit(endpoint).hostname == "127.0.0.1"


def test_without_the_secret_there_is_nothing(endpoint: str) -> None:
    parts = urlsplit(endpoint)
    for path in ("/v1/config", "/v1/namespaces", "/guess/v1/namespaces", "/", f"{parts.path}"):
        assert status(f"http://{parts.netloc}{path}", "GET") == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_refuses_to_write(endpoint: str, method: str) -> None:
    assert status(f"{endpoint}/v1/namespaces/bronze/tables/events", method) == 405
    assert status(f"{endpoint}/v1/namespaces/bronze/tables/events", "GET") == 200


def test_what_is_not_there_is_not_found(endpoint: str) -> None:
    for path in ("namespaces/nope/tables/nope", "namespaces/bronze/tables/nope", "tables", ""):
        assert status(f"{endpoint}/v1/{path}", "GET") == 404
    assert status(f"{endpoint}/v1/namespaces/bronze", "HEAD") == 200


def test_a_namespace_that_is_not_there_is_an_empty_one(endpoint: str) -> None:
    assert status(f"{endpoint}/v1/namespaces/nope", "HEAD") == 200
    for namespace in ("nope", "root"):
        with urllib.request.urlopen(f"{endpoint}/v1/namespaces/{namespace}/tables", timeout=60) as answer:
            assert json.load(answer) == {"identifiers": []}


def test_it_ends_with_its_context(local_lake: Settings) -> None:
    with serve_catalog(local_lake, []) as url:
        assert status(f"{url}/v1/config", "GET") == 200
    with pytest.raises(urllib.error.URLError):
        status(f"{url}/v1/config", "GET")
