"""Prepare the start of Spark: its jars, and an archive of its classes."""

from pathlib import Path

import typer

from lakeproof.install.archive import archive_classes
from lakeproof.install.jars import hashes_of_spark, pyspark_folder, retrieve


def prepare_spark(java: Path, folder: Path, ivy_settings: Path | None = None, *, archive: bool = True) -> None:
    """Retrieve the jars into `folder`, check their hashes, and archive the classes that Spark loads."""
    pyspark_folder()
    typer.echo(f"Checking the jars in {folder} …")
    new = retrieve(str(java), "spark", folder, hashes_of_spark(), ivy_settings)
    count = len(list(folder.glob("*.jar")))
    typer.echo(f"{count} jars {'retrieved' if new else 'are in place'}; their hashes are those that were recorded.")
    if not archive:
        return
    typer.echo("Checking the archive of Spark's classes; if it must be made, that takes half a minute …")
    if log := archive_classes(java, folder):
        typer.echo(f"Spark starts without an archive of its classes, which takes longer. Why: {log}")
    else:
        typer.echo("Ready.")
