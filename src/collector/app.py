"""The routes: posts, health, metrics, OpenAPI."""

from functools import cache
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from collector.budget import Budget
from collector.collect import CORRELATION, IDEMPOTENCY_KEY, Collect
from collector.keys import Keys
from collector.metrics import Metrics
from collector.openapi import PATH, describe
from collector.sender import Sender
from lakeproof.settings import CollectorSettings


def make_app(settings: CollectorSettings, sender: Sender) -> ASGIApp:
    """Make the application."""
    keys = Keys(settings.keys, settings.events_per_second) if settings.keys else None
    budget = Budget(settings.max_queue_bytes)
    metrics = Metrics(lambda: sender.why_not_ready is None, lambda: budget.used)
    collect = Collect(settings, sender, keys, budget, metrics)
    others = _others(settings, sender, metrics)

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        await (collect if scope["type"] == "http" and scope["path"] == PATH else others)(scope, receive, send)

    if not settings.origins:
        return route
    return CORSMiddleware(
        route,
        allow_origins=settings.origins.split(","),
        allow_methods=["POST"],
        allow_headers=["authorization", "content-encoding", "content-type", CORRELATION, IDEMPOTENCY_KEY],
        expose_headers=[CORRELATION, "retry-after"],
    )


def _others(settings: CollectorSettings, sender: Sender, metrics: Metrics) -> FastAPI:
    """Return an application with all routes except for posts, which it only describes."""
    app = FastAPI(
        title="Collector",
        description="Accepts events, and answers when Kafka has stored them.",
        # FastAPI's pages run scripts of another site, beside a field for an API key.
        docs_url=None,
        redoc_url=None,
    )
    description = app.openapi

    @app.get("/healthz", summary="Whether the process runs", tags=["operation"])
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/readyz",
        summary="Whether Kafka acknowledges events",
        tags=["operation"],
        response_model=dict[str, str],
        responses={503: {"description": "Kafka does not acknowledge events.", "model": dict[str, str]}},
    )
    async def readyz() -> JSONResponse:
        why = sender.why_not_ready
        return JSONResponse({"status": why or "ready"}, 503 if why else 200)

    @app.get(
        "/metrics",
        summary="Metrics for Prometheus",
        tags=["operation"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @cache
    def openapi() -> dict[str, Any]:
        return describe(description(), settings)

    app.openapi = openapi  # type: ignore[method-assign]
    return app
