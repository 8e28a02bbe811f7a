"""Retrieve Spark's jars with the Ivy in PySpark, and verify their hashes."""

import fcntl
import hashlib
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.install.proxies import java_options, needs_login

SPARK = "spark"  # configuration of ivy.xml for the programs; others are for the servers of the tests
_LISTED = "jars.sha256"
_OF_BROKER = "kafka.sha256"
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_PRINTED = 3  # lines of Ivy's output in an error message
_LOGIN = " Ivy does not get the login of the proxy in the environment: such a proxy needs a mirror."
_DAMAGE = ("invalid sha1", "invalid md5", ".part", "report.Xml")  # Ivy's messages about incomplete or damaged files


class JarsError(LakeproofError):
    """Jars differ from the recorded ones."""


def hashes_of_spark() -> Path:
    """Return the file with names and hashes of Spark's jars."""
    return _packaged(_LISTED)


def hashes_of_kafka() -> Path:
    """Return the file with names and hashes of the jars of the demo's Kafka broker."""
    return _packaged(_OF_BROKER)


def retrieve(
    java: str, configuration: str, folder: Path, hashes: Path, ivy_settings: Path | None = None, *, lock: bool = False
) -> bool:
    """Retrieve the jars of an Ivy configuration into `folder`; return whether anything was missing."""
    wanted = {} if lock else read_hashes(hashes)
    before = _put_by_us(folder)
    if not lock and hashes_in(folder, wanted) == wanted:
        with suppress(PermissionError):  # a folder of another user with the right jars is fine
            _remember(folder, wanted)
        return False
    foreign = {jar.name for jar in folder.glob("*.jar")} - before - wanted.keys()
    if foreign and not lock:
        raise UsageError(
            f"{folder} contains {min(foreign)}, which is not one of the jars that Spark starts with.",
            "Remove the folder, or set LAKE_JARS to another one.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    # In the same file system, so that renaming is atomic.
    with _alone(), tempfile.TemporaryDirectory(prefix="new-", dir=folder.parent) as new:
        _run_ivy(java, configuration, Path(new), folder.parent / "ivy.log", ivy_settings)
        found = hashes_in(Path(new), [path.name for path in Path(new).iterdir()])
        if lock:
            lines = (f"{digest}  ./{name}\n" for name, digest in sorted(found.items()))
            hashes.write_text("".join(lines))
            wanted = found
        _compare(found, wanted, hashes)
        for name in wanted:
            (Path(new) / name).replace(folder / name)
    for name in before - wanted.keys():
        (folder / name).unlink(missing_ok=True)
    _remember(folder, wanted)
    return True


def holds_spark(folder: Path) -> bool:
    """Whether an earlier call put Spark's jars into `folder`. Compares only names; `retrieve` compares hashes."""
    wanted = read_hashes(hashes_of_spark())
    return _put_by_us(folder) == wanted.keys() == {path.name for path in folder.glob("*.jar")} & wanted.keys()


def read_hashes(path: Path) -> dict[str, str]:
    """Return hashes by name from a list of jars."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return {name.removeprefix("./"): digest for digest, name in pairs}


def hashes_in(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return hashes by name of the jars in a folder, and of `names`."""
    found = {}
    for path in {*folder.glob("*.jar"), *(folder / name for name in names)}:
        if path.is_file():
            with path.open("rb") as content:
                found[path.name] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


def pyspark_folder() -> Path:
    """Return the folder of the installed PySpark."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise UnavailableError("PySpark is not installed.", 'Install it: pip install "lakeproof[consumer]"')
    return Path(spec.submodule_search_locations[0])


def _compare(found: Mapping[str, str], wanted: Mapping[str, str], hashes: Path) -> None:
    if odd := sorted(found.keys() ^ wanted.keys()):
        what = "was not found" if odd[0] in wanted else "is not in it"
        raise JarsError(
            f"The retrieved jars differ from {hashes.name}: {odd[0]} {what}. Nothing was installed.",
            "If you use a mirror of Maven Central, check that it is complete.",
        )
    if changed := [name for name in sorted(wanted) if found[name] != wanted[name]]:
        raise JarsError(
            f"The hash of {changed[0]} differs from {hashes.name}. Nothing was installed.",
            f"Remove the jar from {_ivy_home() / 'cache'} and try again. If it still differs, do not trust its source.",
        )


@contextmanager
def _alone() -> Iterator[None]:
    """Lock Ivy's cache, which supports one process at a time."""
    path = _ivy_home() / "lakeproof.lock"
    try:
        path.parent.mkdir(exist_ok=True)
        lock = path.open("a")
    except OSError:  # Ivy reports this itself; its settings may name another cache
        yield
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("Waiting for another set-up that retrieves jars …\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ivy_home() -> Path:
    """Return the folder of Ivy's cache, in Java's ``user.home``, which may differ from HOME."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        home = str(Path.home())
    return Path(home) / ".ivy2"


def _run_ivy(java: str, configuration: str, into: Path, log: Path, settings: Path | None) -> None:
    command = [java, *java_options(), "-cp", str(pyspark_folder() / "jars" / "*"), "org.apache.ivy.Main", "-warn"]
    command += ["-settings", str(settings or _packaged("ivysettings.xml")), "-ivy", str(_packaged("ivy.xml"))]
    command += ["-confs", configuration, "-retrieve", str(into / _PATTERN)]
    with log.open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        printed = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip(" \t:")]
        if damage := next((line for line in printed if any(sign in line for sign in _DAMAGE)), None):
            raise UnavailableError(
                f"Cannot retrieve the jars, because a download or Ivy's cache is damaged: {damage} Log: {log}",
                f"Remove {_ivy_home() / 'cache'}, then try again. If you use a mirror of Maven Central, check it.",
            )
        raise UnavailableError(
            f"Cannot retrieve the jars: {' '.join(printed[-_PRINTED:]) or 'Ivy failed'}. Log: {log}",
            "Check the network and the disk, then try again. To use a mirror of Maven Central, set --ivy-settings."
            + needs_login() * _LOGIN,
        )


def _put_by_us(folder: Path) -> set[str]:
    """Return the names of the jars that an earlier call put into `folder`."""
    listed = folder / _LISTED
    return set(read_hashes(listed)) if listed.exists() else set()


def _remember(folder: Path, hashes: Mapping[str, str]) -> None:
    text = "".join(f"{digest}  ./{name}\n" for name, digest in sorted(hashes.items()))
    listed = folder / _LISTED
    if not listed.exists() or listed.read_text() != text:
        listed.write_text(text)


def _packaged(name: str) -> Path:
    # Wheels are unpacked, so that resources are files.
    return Path(str(files("lakeproof.install") / name))
