"""``reader page``: write the page to a file."""

import sys
from collections.abc import Sequence
from pathlib import Path

from lakeproof.errors import UsageError
from lakeproof.output_files import write_whole
from lakeproof.settings import Settings
from lakeproof.standard_streams import printable
from reader.page.collect import collect
from reader.page.render import render


def write_page(settings: Settings, streams: Sequence[str], out: Path) -> None:
    """Write the page of the given streams, or of all, to one self-contained file."""
    if out.is_dir() or not out.absolute().parent.is_dir():
        what = "is a folder" if out.is_dir() else f"needs the folder {out.parent}, which does not exist"
        raise UsageError(f"Cannot write the page: {out} {what}.", "Give the name of a file in a folder that exists.")
    page = collect(settings, streams)
    try:
        write_whole(out, render(page).encode())
    except OSError as error:
        raise UsageError(f"Cannot write {out}: {error.strerror}.", "Check the folder and the disk.") from error
    state = "All is well" if page.streams else "The lake has no tables yet"
    if page.wrong:
        (name, problem), *_ = page.wrong
        state = f"Not well: {name}: {problem.text}"
    sys.stdout.write(printable(f"Wrote {out}. {state}.\n"))
