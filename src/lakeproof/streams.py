"""The standard streams of a program, such that a closed pipe or a full disk is one error of a known kind."""

import errno
import io
import os
import re
import sys
from typing import Any, TextIO

from lakeproof.errors import OutputClosedError, OutputError

# What moves a terminal's cursor, reverses the text behind it, or cannot be seen. The joiners U+200C and U+200D are
# left: Persian and emoji need them.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    r"""Write what a terminal would obey, and not show, as an escape like ``\x1b`` or ``\u202e``. Lines stay lines."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def open_standard_streams() -> None:
    """Put streams in place whose failures can be distinguished from those of other files.

    What cannot be written to standard output raises :class:`lakeproof.errors.OutputError`: rich and typer would make
    something of their own of an ``OSError``. What cannot be written to standard error is dropped, since nobody is left
    to be told, and a log must not stop what it tells of.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        # The number of one that is closed would be that of the next file that is opened. Read-only, standard output
        # still refuses what is written to it.
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the program runs
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(1, "wb", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Errors(2, "wb", closefd=False), sys.stderr)


def drop_output() -> None:
    """Send what is left for standard output nowhere: the interpreter flushes it once more when it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


class _Output(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise OutputClosedError("Standard output is closed.") from error
            raise OutputError(
                f"Cannot write to standard output: {error.strerror}.", "Free some space, or redirect the output."
            ) from error


class _Errors(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """A text stream as the one before; what its encoding does not have is written as an escape."""
    terminal = raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors="backslashreplace",
        line_buffering=terminal or isinstance(raw, _Errors),
    )
