"""Files that a user names for an output, such as a report."""

import secrets
import shutil
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside its final name and rename it, so nobody sees a part; write a device or a pipe directly."""
    if is_special(path):
        path.write_bytes(data)
        return
    file = path.resolve()  # the target of a link is replaced, not the link
    part = file.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        part.write_bytes(data)
        if file.exists():
            shutil.copymode(file, part)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def is_special(path: Path) -> bool:
    """Return whether a path is not a regular file: as root, a rename would replace ``/dev/null`` for all programs."""
    return path.exists() and not path.is_file()
