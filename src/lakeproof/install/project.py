"""Template of a project: contracts, data products, settings, and a compose file with MinIO."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import yaml

from lakeproof.errors import UsageError

_NAMES = {"env": ".env"}  # files that have another name in the package
STREAMS = ("clickstream", "events", "sensors")  # streams with a contract in the package


def init_project(folder: Path, streams: tuple[str, ...] = ("events",)) -> list[Path]:
    """Write a new project for some streams into `folder` without replacing files; return the files written."""
    found = {folder / name: content for name, content in _template(streams)}
    for path, content in found.items():
        if path.exists() and (not path.is_file() or path.read_bytes() != content):
            raise UsageError(
                f"{path} exists, with other content. Nothing was written.", "Use another folder, or move the file away."
            )
    written = [path for path in found if not path.exists()]
    for path in written:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(found[path])
    return written


def _template(streams: tuple[str, ...]) -> Iterator[tuple[Path, bytes]]:
    root = Path(str(files("lakeproof.install") / "template"))
    for path in sorted(root.rglob("*")):
        if path.is_file() and _belongs(path, streams):
            yield path.relative_to(root).with_name(_NAMES.get(path.name, path.name)), path.read_bytes()


def _belongs(path: Path, streams: tuple[str, ...]) -> bool:
    if path.parent.name == "contracts":
        return path.stem in streams
    if path.parent.name == "gold":
        return yaml.safe_load(path.read_text()).get("silver", "") in streams
    return True
