"""Pack the Python packages that tasks import, for executors without these packages."""

import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

from lakeproof.errors import UsageError

_OURS = ("lakeproof", "consumer")  # packages of ours that tasks import
_ROOTS = ("lakeproof", "lakeproof-native-judge")
_EXTRA = "consumer"
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w.,\s-]+)\])?")
_EXTRA_OF_MARKER = re.compile(r"""extra\s*==\s*['"]([\w.-]+)['"]""")
# Executors have Spark's jars, and no task needs a package's tests.
_LEFT_OUT = re.compile(r"(^|/)(__pycache__|tests|pyspark/(jars|examples|licenses|data|sbin))/|\.pyc$|^\.\.")


def pack(target: Path, *, only_ours: bool = False) -> int:
    """Write a compressed archive of lakeproof and its requirements, or of lakeproof alone; return the size in bytes."""
    own = [distribution("lakeproof")] if only_ours else list(_required())
    part = target.with_name(f"{target.name}.part")  # a running driver may serve an older archive
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(part, "w:gz", compresslevel=1, dereference=True) as archive:
            for package in _OURS:
                archive.add(str(files(package)), package, filter=_kept)
            for each in own:
                for file in each.files or []:
                    path = Path(str(each.locate_file(file)))
                    is_ours = each.name == "lakeproof" and file.parts[0] in _OURS
                    if path.is_file() and not _LEFT_OUT.search(str(file)) and not is_ours and path.suffix != ".pth":
                        archive.add(path, str(file))
        part.replace(target)
    except OSError as error:
        raise UsageError(f"Cannot write {target}: {error.strerror}.", "Give another file.") from error
    finally:
        with suppress(OSError):
            part.unlink()
    return target.stat().st_size


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT.search(member.name + "/" * member.isdir()) else member


def _required() -> Iterator[Distribution]:
    """Yield the distributions that tasks need: all installed requirements of lakeproof."""
    seen: set[tuple[str, str]] = set()
    done: set[str] = set()
    wanted = [(name, _EXTRA) for name in _ROOTS]
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            found = distribution(name)
        except PackageNotFoundError:  # for another platform or Python, or optional
            continue
        if found.name not in done:
            done.add(found.name)
            yield found
        wanted += _requirements(found.requires or [], extra)


def _requirements(lines: Iterable[str], extra: str) -> Iterator[tuple[str, str]]:
    """Yield names and extras that a distribution requires with an extra; ``""`` means none."""
    for line in lines:
        requirement, _, marker = line.partition(";")
        extras = _EXTRA_OF_MARKER.findall(marker)
        if extras and extra not in extras:
            continue
        if found := _REQUIREMENT.match(requirement.strip()):
            name = re.sub(r"[-_.]+", "-", found[1]).lower()
            yield name, ""
            for each in found[2].split(",") if found[2] else ():
                yield name, each.strip()
