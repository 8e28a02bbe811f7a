"""What commands share: the argument for a stream, and the check before Spark starts."""

from typing import Annotated

import typer

from lakeproof.doctor import Program, check_environment
from lakeproof.move.outside import check_tables
from lakeproof.settings import Settings

StreamArgument = Annotated[
    str, typer.Argument(help="Name of the stream; its contract is contracts/STREAM.yaml.", show_default=False)
]


def check(settings: Settings) -> None:
    """Check the environment and the tables, before Spark is imported."""
    check_environment(settings, Program.CONSUMER)
    check_tables(settings)
