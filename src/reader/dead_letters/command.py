"""Implementation of ``reader dead-letters``."""

import sys
from collections.abc import Sequence
from pathlib import Path

from lakeproof.catalog import catalog_errors
from lakeproof.contracts import load_contract
from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings
from lakeproof.tables.names import stream_tables
from lakeproof.wording import count_of
from reader.catalogs import catalog_of, table_of
from reader.connect import Session
from reader.dead_letters.export import INDEX, export
from reader.dead_letters.report import write_counts
from reader.dead_letters.selection import LetterSelection
from reader.letters import LetterState
from reader.output import Format

_TOP = 10  # number of sources and keys
_ALL = 1_000  # number of sources and keys in JSON


def show_or_export(
    session: Session,
    settings: Settings,
    stream: str,
    states: Sequence[LetterState],
    where: str | None,
    output_format: Format,
    target: str | None,
) -> None:
    """Write counts of dead letters to standard output; with a target, write their bytes to it instead."""
    name = stream_tables(stream).dead_letters
    with catalog_errors():
        table = table_of(catalog_of(settings), name)
    if table is None:
        load_contract(settings.contracts, stream)  # raises an error about an unknown name
        raise UnavailableError(
            f"The stream {stream} has no dead letters: {name} does not exist yet.", "Run the consumer."
        )
    selection = LetterSelection(session, stream, states, where)
    if target is None:
        counts = selection.count(_TOP if output_format is Format.TABLE else _ALL)
        write_counts(counts, stream, states, output_format, sys.stdout)
        return
    path = Path(target)
    is_folder = target.endswith("/") or path.is_dir()
    done = export(selection.letters(), path, is_folder=is_folder)
    sys.stdout.write(f"Wrote {count_of(done.written, 'dead letter')} to {target}\n")
    if done.without_bytes:
        listed = f" {INDEX} lists them." if is_folder else ""
        sys.stderr.write(
            f"{count_of(done.without_bytes, 'dead letter')} too large or gone when read: the bytes are not in the "
            f"table.{listed}\n"
        )
