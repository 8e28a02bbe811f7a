"""``lakeproof init``, ``setup``, and ``jars`` for the project's own scripts."""

from pathlib import Path
from typing import Annotated

import typer

from lakeproof.doctor import find_java
from lakeproof.install.jars import hashes_of_spark, retrieve
from lakeproof.install.project import init_project
from lakeproof.install.spark import prepare_spark
from lakeproof.settings import load_settings

IvySettings = Annotated[
    Path | None,
    typer.Option(
        "--ivy-settings",
        metavar="FILE",
        help="Ivy settings file, to retrieve the jars from a mirror of Maven Central.",
        exists=True,
        dir_okay=False,
    ),
]


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project. It is created if it does not exist.")] = Path(),
) -> None:
    """Write a new project into FOLDER: a contract, a data product, .env, and MinIO for Docker Compose.

    Existing files are never replaced.
    """
    written = init_project(folder)
    for path in written:
        typer.echo(f"Wrote {path}")
    if not written:
        typer.echo("All files exist already.")
    steps = [
        "lakeproof setup",
        "producer events --batches 20 --invalid-schema-chance 0.1",
        "consumer run events --available-now",
        "reader summary events",
    ]
    typer.echo("Next:")
    for step in [f"cd {folder}", *steps] if folder != Path() else steps:
        typer.echo(f"  {step}")


def setup(
    archive: Annotated[
        bool, typer.Option("--archive/--no-archive", help="Archive JVM classes, so that Spark starts faster.")
    ] = True,
    ivy_settings: IvySettings = None,
) -> None:
    """Prepare Spark: retrieve its jars (82 MB, once per user), check their hashes, and speed up its start.

    LAKE_JARS is the folder of the jars. If everything is in place, the command only checks it.
    """
    java, _ = find_java()
    prepare_spark(java, load_settings().spark.jars.absolute(), ivy_settings, archive=archive)


def jars(
    configuration: Annotated[str, typer.Argument(help="Configuration of ivy.xml.")],
    folder: Annotated[Path, typer.Argument(help="Where the jars go.")],
    hashes: Annotated[Path | None, typer.Argument(help="List of hashes. Default: the one of the package.")] = None,
    lock: Annotated[bool, typer.Option("--lock", help="Write the list of hashes.")] = False,
    ivy_settings: IvySettings = None,
) -> None:
    """Retrieve the jars of a configuration, for the project's own scripts."""
    java, _ = find_java()
    if retrieve(str(java), configuration, folder.absolute(), hashes or hashes_of_spark(), ivy_settings, lock=lock):
        typer.echo(f"Retrieved the jars of {configuration}.")
