"""``lakeproof cluster``: what the executors of a cluster need."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lakeproof.cluster import submit_properties
from lakeproof.install.pack import pack
from lakeproof.settings import load_settings

cluster_commands = typer.Typer(no_args_is_help=True, help="Prepare a Spark cluster for the consumer.")


@cluster_commands.command("pack")
def pack_environment(
    file: Annotated[Path, typer.Argument(help="Archive to write, like environment.tar.gz.", show_default=False)],
    only_lakeproof: Annotated[
        bool, typer.Option("--only-lakeproof", help="Leave out its requirements; the executors have them installed.")
    ] = False,
) -> None:
    """Pack the Python packages that tasks import, for LAKE_SPARK_ENVIRONMENT.

    The executors unpack it. Their machines need the same version of Python, the same platform, and nothing else.
    """
    size = pack(file, only_ours=only_lakeproof)
    typer.echo(f"Wrote {file}: {size / 1e6:,.1f} MB. Next: LAKE_SPARK_ENVIRONMENT={file.absolute()}")


@cluster_commands.command("conf")
def print_properties() -> None:
    """Print the further options that spark-submit needs, as a properties file.

    lakeproof cluster conf > lakeproof.conf

    spark-submit --master yarn --properties-file lakeproof.conf .../consumer/__main__.py run events
    """
    for name, value in submit_properties(load_settings()).items():
        escaped = value.replace("\\", "\\\\")  # as in a properties file of Java
        sys.stdout.write(f"{name} {escaped}\n")
