"""Contracts in a real schema registry: IDs, compatibility, and errors when it is down or rejects a contract."""

import json
import urllib.request
import uuid
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from tests.answers import answering
from tests.servers import RegistryServer, free_port

from lakeproof.contracts import Contract, Field, PrimitiveType, load_contract
from lakeproof.contracts.json_schema import json_schema
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.http_server import HttpServer
from lakeproof.kafka.registry import IncompatibleError, Registry, differences
from lakeproof.settings import RegistrySettings, settings_of

CONTRACT = load_contract(Path(__file__).parents[3] / "contracts", "clickstream")


def changed(fields: tuple[Field, ...], version: str) -> Contract:
    return replace(CONTRACT, fields=fields, version=version, digest=version)


WIDER = changed((*CONTRACT.fields, Field("more", PrimitiveType.STRING)), "3.2.0")
NARROWER = changed(tuple(field for field in CONTRACT if field.name != "type"), "4.0.0")
OTHER = changed(
    tuple(replace(field, type=PrimitiveType.STRING) if field.name == "id" else field for field in CONTRACT), "4.1.0"
)


def ask(registry: RegistryServer, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = json.dumps(body).encode() if body else None
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(registry.uri + path, data, headers, method=method)) as answer:
        return json.load(answer)


@pytest.fixture
def subject(registry: RegistryServer) -> Registry:
    return Registry(RegistrySettings(url=registry.uri), f"test-{uuid.uuid4().hex[:12]}")


def test_a_contract_has_one_id(registry: RegistryServer, subject: Registry) -> None:
    subject.check(CONTRACT)
    first = subject.register(CONTRACT)
    assert subject.register(CONTRACT) == first
    assert ask(registry, "GET", f"/config/{subject.subject}")["compatibilityLevel"] == "BACKWARD"
    found = ask(registry, "GET", f"/schemas/ids/{first}")
    assert (found["schemaType"], json.loads(found["schema"])) == ("JSON", json_schema(CONTRACT))
    assert "correlation_id" not in found["schema"]


def test_an_optional_field_is_a_new_version(subject: Registry) -> None:
    first = subject.register(CONTRACT)
    subject.check(WIDER)
    second = subject.register(WIDER)
    assert second != first
    assert subject.register(CONTRACT) == first


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (OTHER, '$.properties.id.type: "integer" → "string"'),
        (NARROWER, '$.required: ["id", "type", "event"] → ["id", "event"]'),
    ],
)
def test_an_incompatible_contract_is_refused_with_the_differences(
    registry: RegistryServer, subject: Registry, contract: Contract, said: str
) -> None:
    subject.register(CONTRACT)
    for refuse in (subject.check, subject.register):
        with pytest.raises(IncompatibleError) as error:
            refuse(contract)
        assert f"refuses contract {contract.version} of clickstream" in error.value.message
        assert f"under version 1 of {subject.subject}. " in error.value.message
        assert said in error.value.message
    assert ask(registry, "GET", f"/subjects/{subject.subject}/versions") == [1]


def test_the_compatibility_of_an_existing_subject_is_its_operators(registry: RegistryServer, subject: Registry) -> None:
    subject.register(CONTRACT)
    ask(registry, "PUT", f"/config/{subject.subject}", {"compatibility": "NONE"})
    subject.check(OTHER)
    assert subject.register(OTHER)
    assert ask(registry, "GET", f"/config/{subject.subject}")["compatibilityLevel"] == "NONE"


def test_the_compatibility_that_was_set_in_advance_stays(registry: RegistryServer, subject: Registry) -> None:
    ask(registry, "PUT", f"/config/{subject.subject}", {"compatibility": "FULL"})
    assert subject.register(CONTRACT)
    assert ask(registry, "GET", f"/config/{subject.subject}")["compatibilityLevel"] == "FULL"


def test_a_registry_that_is_away() -> None:
    settings = RegistrySettings(url=f"http://127.0.0.1:{free_port()}", username="u", password=SecretStr("secret"))
    away = Registry(settings, "t")
    for ask_it in (away.check, away.register):
        with pytest.raises(UnavailableError, match=r"does not respond: .*refused") as error:
            ask_it(CONTRACT)
        assert "secret" not in str(error.value)


def test_the_server_of_a_redirect_gets_no_password() -> None:
    sent: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append((self.path, self.headers.get("Authorization")))
            self.send_response(200 if self.path == "/login" else 302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/login")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, *_: object) -> None: ...

    server = HttpServer("127.0.0.1", 0, Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    settings = RegistrySettings(url=url, username="u", password=SecretStr("secret"))
    with server.in_background(), pytest.raises(LakeproofError):
        Registry(settings, "t").register(CONTRACT)
    assert sent[0][1] == "Basic dTpzZWNyZXQ="
    assert ("/login", None) in sent
    assert ("/login", "Basic dTpzZWNyZXQ=") not in sent


def test_something_else_that_answers(registry: RegistryServer) -> None:
    other = Registry(RegistrySettings(url=registry.uri.replace("/apis/ccompat/v7", "/nothing")), "t")
    with pytest.raises(UsageError, match="answered 404"):
        other.register(CONTRACT)


@pytest.mark.parametrize(
    ("status", "body", "length", "words"),
    [
        (200, b"<html>Log in</html>", None, "does not answer like a schema registry"),
        (200, b'{"id": "7"}', None, "does not answer like a schema registry"),
        (521, b"<html>Web server is down</html>", None, "answered 521: no reason"),
        (500, b'{"message": "cut', 100, "does not respond: IncompleteRead"),
    ],
)
def test_a_proxy_that_answers_in_place_of_the_registry(
    status: int, body: bytes, length: int | None, words: str
) -> None:
    with answering(status, body, length) as uri, pytest.raises(UnavailableError, match=words) as error:
        Registry(RegistrySettings(url=uri), "t").register(CONTRACT)
    assert error.value.hint


@pytest.mark.parametrize(("status", "kind"), [(200, UnavailableError), (404, UsageError)])
def test_a_proxy_accepts_no_contract(status: int, kind: type[LakeproofError]) -> None:
    with answering(status, b"<html>Log in</html>") as uri, pytest.raises(kind):
        Registry(RegistrySettings(url=uri), "t").check(CONTRACT)


def test_a_refusal_without_the_registered_schema() -> None:
    with answering(409, b"<html>Conflict</html>") as uri, pytest.raises(LakeproofError, match="answered 409"):
        Registry(RegistrySettings(url=uri), "t").check(CONTRACT)
    for schema in (b"{}", b'{"schema": "syntax = proto3;"}', b'{"schema": 1, "is_compatible": false}'):
        with answering(200, schema) as uri:
            refused = Registry(RegistrySettings(url=uri), "t")._incompatible(CONTRACT)
        assert "The registry does not say why" in str(refused)


@pytest.mark.parametrize("text", ["127.0.0.1:8081", "ftp://host", "http://", "http://user:word@host", "http://h/?a=b"])
def test_the_address_is_one_of_the_web(text: str) -> None:
    with pytest.raises(UsageError, match=r"LAKE_SCHEMA_REGISTRY_URL: .* is not the address of a server"):
        settings_of({"LAKE_SCHEMA_REGISTRY_URL": text})


def test_differences_are_told_with_their_paths() -> None:
    old = {"a": 1, "description": "x", "properties": {"title": {"type": "string"}}, "required": ["a"]}
    new = {"b": {"c": None}, "description": "y", "properties": {"title": {"type": "integer"}}, "required": ["a", "b"]}
    assert list(differences(old, new)) == [
        "$.a: 1 → none",
        '$.b: none → {"c": null}',
        '$.properties.title.type: "string" → "integer"',
        '$.required: ["a"] → ["a", "b"]',
    ]
    assert list(differences(old, old)) == []
