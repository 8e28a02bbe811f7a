"""`consumer rebuild`, and `consumer archive`."""

from enum import StrEnum
from typing import Annotated

import typer

from consumer.cli.shared import check
from consumer.scope import LayerName, scope_of_rebuild
from lakeproof.settings import load_settings


class Rebuildable(StrEnum):
    """A layer that is filled from another one."""

    SILVER = "silver"
    GOLD = "gold"


def rebuild_layer(
    layer: Annotated[Rebuildable, typer.Argument(help="Layer to fill again.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Name of the stream; for gold, of the data product.", show_default=False)],
) -> None:
    """Fill a layer again from the layer before it, then replace its tables.

    For silver, use this after a change of the horizon in the contract. For gold, use it after a change of the keys,
    windows or measures of the product, and after a rebuild of silver. Readers see the old tables until the new ones are
    complete. If the command is interrupted, run it again.
    """
    settings = load_settings()
    scope = scope_of_rebuild(settings, LayerName(layer), name)
    check(settings)
    from consumer.app.run import run_rebuild

    typer.echo(run_rebuild(scope))


def archive() -> None:
    """Archive the JVM classes that a run loads, so that later starts take about half the time.

    `lakeproof setup` does this. The archive only works with the same Java and the same jars. Otherwise it is ignored.
    """
    settings = load_settings()
    from consumer.app.archive import archive_classes

    typer.echo(f"archived: {archive_classes(settings)}")
