"""``reader serve``: serve the catalog to other programs."""

import secrets
import time

import structlog
import typer

from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings
from lakeproof.signals import ending_signals
from reader.rest_facade import serve_to_others

_POLL_SECONDS = 0.2

log = structlog.get_logger()


def run_server(settings: Settings) -> None:
    """Serve the catalog until a signal."""
    token = settings.serve.token
    made = secrets.token_urlsafe() if token is None else ""
    ended: list[int] = []
    with (
        ending_signals(lambda number, _: ended.append(number)),  # before the address is printed
        serve_to_others(settings, token.get_secret_value() if token else made, _report) as address,
    ):
        typer.echo(f"Serving the catalog, read-only, at {address}. Ctrl-C stops it.")
        if made:
            typer.echo(f"For its clients: export LAKE_SERVE_TOKEN={made}")
        typer.echo("How to connect: lakeproof connect duckdb, or pyiceberg or spark with --served")
        while not ended:
            time.sleep(_POLL_SECONDS)


def _report(error: LakeproofError) -> None:
    log.warning("the catalog cannot be read", message=error.message, hint=error.hint)
