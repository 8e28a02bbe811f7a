"""Shared command line code: a Typer application that reports user errors as one line and a hint."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import structlog
import typer

from lakeproof.errors import LakeproofError, OutputClosedError, OutputError, UsageError
from lakeproof.install.judges import judge_choice
from lakeproof.logs import configure_logs, log_the_rest, log_unhandled, logs_are_json
from lakeproof.proxies import reach_this_machine_directly
from lakeproof.settings import load_settings
from lakeproof.settings.help import epilog
from lakeproof.signals import end_at_once
from lakeproof.standard_streams import drop_output, open_standard_streams, printable
from lakeproof.storage.disk import full_disk

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 500
_INTERRUPTED = 128 + signal.SIGINT
_PIPE_CLOSED = 128 + signal.SIGPIPE


def application(name: str, help_text: str, variables: Sequence[str] = (), *, judges: bool = False) -> typer.Typer:
    """Create the Typer application of a program: its help lists settings, and its version can name the judge."""
    app = typer.Typer(name=name, no_args_is_help=True, pretty_exceptions_enable=False)

    def print_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"{name} {version('lakeproof')}{_judge() if judges else ''}")
            raise typer.Exit

    # With a callback, a program with a single command keeps its command name.
    @app.callback(help=help_text, epilog=epilog(variables) if variables else None)
    def program(
        _version: Annotated[
            bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None: ...

    return app


def run(app: Callable[..., Any], logs: Sequence[str] = ()) -> None:
    """Run an application and end the program.

    User errors end it with their exit code, one line and a hint; Ctrl-C and a closed pipe end it silently with the exit
    codes of a shell.
    """
    open_standard_streams()
    configure_logs()
    reach_this_machine_directly()
    threading.excepthook = _report_thread_error
    as_json = logs_are_json() and sys.argv[1:2] in [[command] for command in logs]
    if as_json:
        log_the_rest()
    interrupted = False

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            end_at_once(number)
        interrupted = True
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    try:
        try:
            _check_arguments(sys.argv)
            if as_json:  # raises errors of the command line instead of printing them
                sys.exit(app(standalone_mode=False))
            app()
        finally:
            sys.stdout.flush()
    except BaseException as error:
        # Libraries may raise other errors on interruption, for example DuckDB.
        code = _INTERRUPTED if interrupted else _report(error, as_json=as_json)
        if code is None:
            raise
        sys.exit(code)


def wide_console() -> "Console":
    """Return a console that wraps lines only on a terminal."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


def check_each(names: Sequence[str], check: Callable[[str], None]) -> NoReturn:
    """Check some files, report all that are rejected, and exit."""
    refused = False
    for name in names:
        try:
            check(name)
        except UsageError as error:
            refused = True
            print_error(error)
    raise typer.Exit(UsageError.exit_code if refused else 0)


def print_error(error: LakeproofError) -> None:
    """Print an error and its hint for people."""
    sys.stderr.write(f"Error: {printable(str(error))}\n")


def _judge() -> str:
    try:
        return f" (judge: {judge_choice(load_settings().judge)})"
    except LakeproofError:  # the version is printed even with wrong settings
        return " (judge: none, see `lakeproof doctor`)"


def _report(error: BaseException, *, as_json: bool) -> int | None:
    """Report an error; return the exit code, or None to let the interpreter handle it."""
    if isinstance(error, OutputError):
        drop_output()
    if isinstance(error, OutputClosedError):
        return _PIPE_CLOSED
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED
    found = _user_error(error)
    if as_json and isinstance(error, Exception):
        return _logged(error, found)
    if found is None:
        return None
    print_error(found)
    return found.exit_code


def _logged(error: Exception, found: LakeproofError | None) -> int:
    """Log the error of a command; return the exit code."""
    code, stack = 1, None
    if found:
        code = found.exit_code
    elif click_says := getattr(error, "format_message", None):  # Click's classes are private in Typer
        found, code = UsageError(click_says(), "Add --help for the options."), UsageError.exit_code
    else:
        message = f"{type(error).__name__}: {error}"
        found, stack = LakeproofError(message, "This is a mistake in lakeproof: please report this line."), error
    about = {"message": found.message, "hint": found.hint, "retryable": found.retryable}
    structlog.get_logger().error("failed", **about, **({"exc_info": stack} if stack else {}))
    return code


def _user_error(error: BaseException) -> LakeproofError | None:
    """Convert an error to a user error; None for a bug in the program."""
    if isinstance(error, OSError) and (full := full_disk(error)):
        return full
    if isinstance(error, OSError) and error.strerror:
        what = f"{os.fspath(error.filename)!r}: " if error.filename is not None else ""
        return LakeproofError(
            f"{what}{error.strerror}.", "Check the path, its permissions and the disk, then try again."
        )
    if isinstance(error, OutputClosedError):
        return None  # nobody can read it
    return error if isinstance(error, LakeproofError) else None


def _report_thread_error(failed: threading.ExceptHookArgs) -> None:
    """Report the error of a helper thread; its caller reports unavailable resources with a hint."""
    if isinstance(failed.exc_value, OSError):
        name = failed.thread.name if failed.thread else "?"
        structlog.get_logger().warning("a thread ended", thread=name, why=str(failed.exc_value))
    elif logs_are_json():
        log_unhandled(failed)
    else:
        threading.__excepthook__(failed)


def _check_arguments(arguments: list[str]) -> None:
    for number, argument in enumerate(arguments):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"Argument {number} is not valid UTF-8: {os.fsencode(argument)!r}.", "Encode it as UTF-8."
            ) from None
