"""Standard streams that report a closed pipe or a full disk as an error of one type."""

import errno
import io
import os
import re
import sys
from typing import Any, TextIO

from lakeproof.errors import OutputClosedError, OutputError

# Characters that move the cursor, reverse text or are invisible, except the joiners U+200C and U+200D, which Persian
# and emoji need.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    r"""Escape control characters, for example ``\x1b`` or ``\u202e``, but not line ends."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def open_standard_streams() -> None:
    """Replace the standard streams by streams whose failures differ from failures of other files.

    Failed writes to standard output raise :class:`lakeproof.errors.OutputError`: rich and typer would handle an
    ``OSError`` in their own way. Failed writes to standard error are dropped: a log must not stop the program.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        # Otherwise the next file that is opened would get the number of a closed stream. Read-only, so that writes to
        # standard output still fail.
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
    """Discard the buffer of standard output, which the interpreter flushes again on exit."""
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
    """Return a text stream like `before` that escapes characters which its encoding lacks."""
    terminal = raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors="backslashreplace",
        line_buffering=terminal or isinstance(raw, _Errors),
    )
