"""Client of a schema registry with Confluent's API: registers contracts as JSON Schema."""

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPException, responses
from typing import Any
from urllib.parse import quote

from lakeproof.contracts import Contract
from lakeproof.contracts.json_schema import json_schema
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.settings import RegistrySettings

_TYPE = "application/vnd.schemaregistry.v1+json"
_COMPATIBILITY = "BACKWARD"
_SHOWN = 10
_TIMEOUT_SECONDS = 5.0
_SAYS_NOTHING = ("$comment", "description", "title")


class IncompatibleError(UsageError):
    """A contract is incompatible with the registered one."""


class Registry:
    """The subject ``<topic>-value`` in a registry."""

    def __init__(self, settings: RegistrySettings, topic: str) -> None:
        self._settings = settings
        self._url = (settings.url or "").rstrip("/")
        self.subject = f"{topic}-value"

    def check(self, contract: Contract) -> None:
        """Check that a contract can be registered."""
        path = f"/compatibility/subjects/{quote(self.subject, safe='')}/versions/latest"
        status, found = self._ask("POST", path, _body(contract))
        if status == HTTPStatus.OK and "is_compatible" not in found:
            raise self._unlike("it does not say whether the contract is compatible")
        if status == HTTPStatus.OK and not found["is_compatible"]:
            raise self._incompatible(contract)
        if status != HTTPStatus.OK and (status != HTTPStatus.NOT_FOUND or not found):
            raise self._refused(status, found)

    def register(self, contract: Contract) -> int:
        """Register a contract unless it is registered, and return its id.

        New subjects are BACKWARD compatible, unless their compatibility was set in advance.
        """
        subject = quote(self.subject, safe="")
        status, found = self._ask("GET", f"/subjects/{subject}/versions")
        if status == HTTPStatus.NOT_FOUND:
            status, found = self._ask("GET", f"/config/{subject}")
        if status == HTTPStatus.NOT_FOUND:
            status, found = self._ask("PUT", f"/config/{subject}", {"compatibility": _COMPATIBILITY})
        if status != HTTPStatus.OK:
            raise self._refused(status, found)
        status, found = self._ask("POST", f"/subjects/{subject}/versions", _body(contract))
        if status == HTTPStatus.CONFLICT:
            raise self._incompatible(contract)
        if status != HTTPStatus.OK:
            raise self._refused(status, found)
        if not isinstance(found.get("id"), int):
            raise self._unlike("it assigned no id")
        return int(found["id"])

    def _incompatible(self, contract: Contract) -> IncompatibleError:
        status, found = self._ask("GET", f"/subjects/{quote(self.subject, safe='')}/versions/latest")
        registered = _object(str(found.get("schema")).encode()) if status == HTTPStatus.OK else {}
        lines = list(differences(registered, json_schema(contract))) if registered else []
        more = [f"and {len(lines) - _SHOWN:,} more"] if len(lines) > _SHOWN else []
        return IncompatibleError(
            f"The schema registry refuses contract {contract.version} of {contract.stream}: it cannot read what was "
            f"written under version {found.get('version', '?')} of {self.subject}. "
            f"{'; '.join([*lines[:_SHOWN], *more]) or 'The registry does not say why'}.",
            f"Make the change compatible (see `lakeproof contract diff`), or change the compatibility of "
            f"{self.subject} in the registry.",
        )

    def _unlike(self, what: str) -> UnavailableError:
        return UnavailableError(
            f"{self._url} does not answer like a schema registry: {what}.",
            "Check LAKE_SCHEMA_REGISTRY_URL, and what is between here and the registry.",
        )

    def _refused(self, status: int, found: dict[str, Any]) -> LakeproofError:
        text = str(found.get("message") or responses.get(status, "no reason")).rstrip(".")
        message = f"The schema registry at {self._url} answered {status}: {text}."
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
            return UnavailableError(message, "Check the registry.")
        return UsageError(message, "Check LAKE_SCHEMA_REGISTRY_URL, and the username and the password.")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Call the registry; an answer that is not an object counts as empty."""
        request = urllib.request.Request(  # noqa: S310 - the settings take http and https only
            self._url + path, json.dumps(body).encode() if body else None, {"Content-Type": _TYPE}, method=method
        )
        password = self._settings.password.get_secret_value() if self._settings.password else ""
        if self._settings.username:
            login = b64encode(f"{self._settings.username}:{password}".encode()).decode()
            # Not for the server of a redirect: a proxy may name its login page.
            request.add_unredirected_header("Authorization", f"Basic {login}")
        try:
            try:
                answer = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)  # noqa: S310
            except urllib.error.HTTPError as error:
                answer = error  # an answer with another status
            with answer:
                return answer.status, _object(answer.read())
        except (OSError, HTTPException) as error:
            raise UnavailableError(
                f"The schema registry at {self._url} does not respond: {getattr(error, 'reason', None) or error}.",
                "Start it, or check LAKE_SCHEMA_REGISTRY_URL.",
            ) from error


def differences(old: Any, new: Any, path: str = "$") -> Iterator[str]:
    """Yield differences of two JSON Schemas except descriptions: path and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            # Fields may be named like keywords of JSON Schema.
            if key not in _SAYS_NOTHING or path.endswith(".properties"):
                yield from differences(old.get(key, _Absent), new.get(key, _Absent), f"{path}.{key}")
    elif old != new:
        yield f"{path}: {_text(old)} → {_text(new)}"


class _Absent:
    """Marks a missing value."""


def _text(value: Any) -> str:
    return "none" if value is _Absent else json.dumps(value, ensure_ascii=False)


def _body(contract: Contract) -> dict[str, str]:
    return {"schemaType": "JSON", "schema": json.dumps(json_schema(contract), sort_keys=True)}


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
