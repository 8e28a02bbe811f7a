"""OpenAPI description of ``POST /collect``, from the types of its answers and the settings."""

from http import HTTPStatus
from typing import Any

import msgspec

from collector.answers import Accepted, Problem
from lakeproof.settings import CollectorSettings

PATH = "/collect"

_REFUSALS = {
    HTTPStatus.BAD_REQUEST: "The body is not JSON, or cannot be unpacked.",
    HTTPStatus.REQUEST_TIMEOUT: "The body arrived too slowly.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body or an event is too large, or there are too many events.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The type or the encoding of the body is not supported.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "An event does not have the expected shape.",
    HTTPStatus.TOO_MANY_REQUESTS: "The queue is full, or the client sends too fast.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Kafka does not acknowledge events, or not all events of this post.",
}
_REFERENCE = "#/components/schemas/{name}"
_HEADER_TEXT = {"type": "string", "pattern": "^[ -~]*$"}


def describe(openapi: dict[str, Any], settings: CollectorSettings) -> dict[str, Any]:
    """Add ``POST /collect`` to the OpenAPI document."""
    (accepted, problem), schemas = msgspec.json.schema_components([Accepted, Problem], ref_template=_REFERENCE)
    retry = {"retry-after": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}}
    correlation = {"x-correlation-id": {"description": "The id of this post in the log.", "schema": {"type": "string"}}}
    responses: dict[str, Any] = {
        "202": {
            "description": "All in-sync replicas have every event.",
            "headers": correlation,
            "content": {"application/json": {"schema": accepted}},
        }
    }
    refusals = dict(_REFUSALS)
    if settings.keys:
        refusals[HTTPStatus.UNAUTHORIZED] = "The API key is missing or not valid."
    for status, meaning in sorted(refusals.items()):
        again = status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
        responses[str(int(status))] = {
            "description": meaning,
            "headers": correlation | (retry if again else {}),
            "content": {"application/problem+json": {"schema": problem}},
        }
    operation: dict[str, Any] = {
        "operationId": "collect",
        "tags": ["events"],
        "summary": "Send events",
        "description": "The answer is 202 when all in-sync replicas of Kafka have every event. After any other answer, "
        "send the same post again, with the same Idempotency-Key.",
        "parameters": [
            _header("idempotency-key", "Identifies repeated posts.", {"minLength": 1, "maxLength": 255}),
            _header("x-correlation-id", "The id of this post in the log.", {}),
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _events(settings)}}},
        "responses": responses,
    }
    if settings.keys:
        operation["security"] = [{"key": []}]
    result = {**openapi, "paths": {**openapi["paths"], PATH: {"post": operation}}}
    components = result.setdefault("components", {})
    components["schemas"] = components.get("schemas", {}) | schemas
    if settings.keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return result


def _header(name: str, description: str, bounds: dict[str, int]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": _HEADER_TEXT | bounds}


def _events(settings: CollectorSettings) -> dict[str, Any]:
    return {
        "type": "array",
        "minItems": 1,
        "maxItems": settings.max_events,
        "items": {
            "type": "object",
            "required": ["id", "type", "event"],
            "properties": {
                "id": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
                "type": {"type": "string"},
                "event": {"type": "object"},
            },
        },
    }
