"""What the command lines share: a Typer application whose user errors are one line and a hint."""

import sys
from collections.abc import Callable

import typer

from lakeproof.errors import LakeproofError
from lakeproof.logs import configure_logs


def application(name: str, help_text: str) -> typer.Typer:
    """Make the Typer application of a program."""
    return typer.Typer(
        name=name, help=help_text, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )


def run(app: Callable[[], object]) -> None:
    """Run an application; a user's mistake ends it with its own exit code and no stack trace."""
    configure_logs()
    try:
        app()
    except LakeproofError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(error.exit_code)
