"""Export the bytes of dead letters.

Dead letters without line breaks can be exported to a file, one per line, which line-based tools can correct, and which
can be landed again as newline-delimited JSON. Others are exported to a folder with a file for each dead letter: bytes
of any kind stay unchanged, and every tool can read them, unlike a file format with length prefixes.
"""

import json
import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from lakeproof.errors import LakeproofError, UsageError
from lakeproof.wording import count_of
from reader.dead_letters.selection import Letter

INDEX = "index.jsonl"
"""Name of the file in the folder that lists the origin of each other file."""
_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS = 80


@dataclass(frozen=True)
class Exported:
    """Number of dead letters that were written, and of those without bytes."""

    written: int
    without_bytes: int


def export(letters: Iterable[Letter], path: Path, *, is_folder: bool) -> Exported:
    """Write dead letters to a new file, or to files in a new or empty folder; a failure leaves no files."""
    target = path.expanduser()
    try:
        return _to_folder(letters, target) if is_folder else _to_file(letters, target)
    except OSError as error:
        raise LakeproofError(f"Cannot write to {path}: {error.strerror}.", "Choose another place.") from error


def _to_file(letters: Iterable[Letter], path: Path) -> Exported:
    if path.exists():
        raise UsageError(f"{path} already exists.", "Choose another name, or remove it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    written = without = several = 0
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            for *_, raw in letters:
                if raw is None:
                    without += 1
                elif not raw or b"\n" in raw or b"\r" in raw:
                    several += 1
                else:
                    file.write(raw + b"\n")
                    written += 1
            if several:
                raise LakeproofError(
                    f"{count_of(several, 'dead letter')} of {written + several + without:,} cannot be a line: "
                    f"{'it is' if several == 1 else 'they are'} empty, or {'has' if several == 1 else 'have'} line "
                    "breaks.",
                    f"Export them to a folder, with a file for each: --export {path}/",
                )
            file.flush()
            os.link(file.name, path)  # fails if the file was created meanwhile
        finally:
            Path(file.name).unlink()
    return Exported(written, without)


def _to_folder(letters: Iterable[Letter], path: Path) -> Exported:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is not an empty folder.", "Choose another name, or empty it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.with_name(f".{secrets.token_hex(8)}.tmp")
    folder.mkdir()  # unlike tempfile, with the mode that the umask sets
    written = without = 0
    try:
        with (folder / INDEX).open("w", encoding="utf-8") as index:
            for source, position, letter, state, reasons, raw in letters:
                name = None
                if raw is None:
                    without += 1
                else:
                    written += 1
                    name = f"{written:07}-{_NAME.sub('_', source)[-_NAME_CHARACTERS:]}-{position}"
                    (folder / name).write_bytes(raw)
                entry = {"file": name, "source": source, "position": position, "attempt": letter, "state": state}
                index.write(json.dumps(entry | {"reasons": reasons}, ensure_ascii=True) + "\n")
        folder.replace(path)
    except BaseException:
        with suppress(OSError):
            for each in folder.iterdir():
                each.unlink()
            folder.rmdir()
        raise
    return Exported(written, without)
