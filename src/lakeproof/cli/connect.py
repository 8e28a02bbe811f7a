"""``lakeproof connect``."""

import sys
from typing import Annotated

import typer

from lakeproof.addresses import sqlite_path
from lakeproof.connect.snippets import Client, snippet
from lakeproof.errors import LakeproofError
from lakeproof.settings import Settings, load_settings

_EXAMPLE = "bronze.events"


def connect(
    client: Annotated[Client, typer.Argument(help="Program that reads the lake.", show_default=False)],
    table: Annotated[
        str | None, typer.Option(help="Table that the snippet reads. Default: the first one of bronze.")
    ] = None,
    served: Annotated[
        bool,
        typer.Option(
            "--served", help="Connect through `reader serve`, as DuckDB always does, not to the catalog itself."
        ),
    ] = False,
) -> None:
    """Print a snippet that reads this lake from another program: Python, SQL, a notebook, or a shell script.

    Passwords and keys appear as references to environment variables.

    lakeproof connect pyiceberg > lake.py · lakeproof connect jupyter > lake.ipynb
    """
    settings = load_settings()
    sys.stdout.write(snippet(settings, client, table or _first_table(settings), served=served))


def _first_table(settings: Settings) -> str:
    """The first bronze table of an existing catalog."""
    path = sqlite_path(settings.catalog.uri) if settings.catalog.kind == "sql" else None
    if path and not path.exists():
        return _EXAMPLE
    try:
        from lakeproof.catalog import catalog_errors, open_catalog

        with catalog_errors():
            found = sorted(open_catalog(settings).list_tables("bronze"))
    except (LakeproofError, ImportError):
        return _EXAMPLE
    return ".".join(found[0]) if found else _EXAMPLE
