"""Check the requirements of a program on this machine."""

import os
import re
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path

import structlog

from lakeproof.addresses import sqlite_path, without_password
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.cluster import check_reachable, is_submitted, places_of
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.install.jars import pyspark_folder
from lakeproof.install.judges import judge_choice
from lakeproof.settings import Settings
from lakeproof.storage import scheme_of
from lakeproof.storage.disk import full_disk
from lakeproof.storage.local import local_path

_OLDEST_JAVA = 17
_NEWEST_JAVA = 22  # Hadoop calls Subject.getSubject, which newer ones refuse
_JAVA_VERSION = re.compile(r'(?:JAVA_VERSION=| version )"(?:1\.)?(\d+)')
_LANDING = "landing zone"
_CONNECT_SECONDS = 2.0
_PERMISSIONS = "Check its permissions and the disk, or set LAKE_HOME to another folder."


class Program(StrEnum):
    """A program with requirements to check."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    READER = "reader"
    COLLECTOR = "collector"


@dataclass(frozen=True)
class Check:
    """A requirement of a program."""

    name: str
    look: Callable[[], str]  # returns what was found, or raises `LakeproofError`
    optional: bool = False  # the program can run without it


@dataclass(frozen=True)
class Finding:
    """Result of a check; `error` is None if it passed."""

    check: Check
    detail: str
    error: LakeproofError | None


def check_environment(settings: Settings, program: Program, landing: str | None = None, *, lake: bool = True) -> None:
    """Raise the first error that keeps `program` from running; log optional ones as warnings."""
    for finding in examine(checks_for(settings, program, landing, lake=lake)):
        if finding.error and not finding.check.optional:
            raise finding.error
        if finding.error:
            structlog.get_logger().warning(finding.error.message, hint=finding.error.hint)


def examine(checks: list[Check]) -> Iterator[Finding]:
    """Run checks in order."""
    for check in checks:
        try:
            yield Finding(check, check.look(), None)
        except LakeproofError as error:
            yield Finding(check, error.message, error)
        except OSError as error:  # such as a folder below one that the user may not enter
            unavailable = UnavailableError(f"{error.filename or check.name}: {error.strerror or error}.", _PERMISSIONS)
            yield Finding(check, unavailable.message, unavailable)


def checks_for(settings: Settings, program: Program, landing: str | None = None, *, lake: bool = True) -> list[Check]:
    """Return the checks of `program`, cheapest first."""
    if program is Program.COLLECTOR:
        return _of_collector(settings)
    # Commands that read only tables need no contracts: SQL, shell, list of tables.
    needs_contracts = lake and program is not Program.READER
    checks = [Check("contracts", lambda: _contracts(settings.contracts))] * needs_contracts
    locations = {_LANDING: landing or settings.landing.uri} if lake else {}
    # With a REST catalog, the setting is a name, and its server says where tables are.
    if lake and program is not Program.PRODUCER and settings.catalog.kind == "sql":
        locations["warehouse"] = settings.catalog.warehouse_uri
    if program is Program.CONSUMER:
        locations["checkpoints"] = settings.state.checkpoints
        if lake and settings.spark.is_remote:
            checks.insert(0, Check("cluster", lambda: check_reachable(settings, places_of(settings))))
        checks += [
            Check("Java", _java),
            Check("Spark", _spark),
            Check("jars", lambda: _jars(settings.spark.jars)),
            Check("judge", lambda: _judge(settings)),
            # A port that was set must be free; for the default, Spark takes the next free one.
            Check("Spark UI port", lambda: _ui_port(settings), optional=not _asked_for_port(settings)),
            Check("logs", lambda: _writable(settings.logs)),
            _database("landing log", settings.state.database, partial(_state, settings)),
        ]
    for name, uri in locations.items():
        # The reader writes nothing, and the consumer only looks into the landing zone.
        writes = name != _LANDING if program is Program.CONSUMER else program is Program.PRODUCER
        checks.append(_location(name, uri, settings, writes))
    if lake and program is not Program.PRODUCER:
        checks.append(_catalog(settings, program))
    return checks


def checks_of_streams(settings: Settings, program: Program) -> list[Check]:
    """Return checks of each stream's landing zone. They read contracts and ledgers, so programs do not run them.

    Those of the producer read no ledger: it writes where settings and contracts say, and has no client of the catalog.
    """
    if program is Program.COLLECTOR:
        return []
    streams = settings.streams
    return [Check(f"{_LANDING} of {stream}", partial(_stream, settings, stream, program)) for stream in streams]


def _stream(settings: Settings, stream: str, program: Program) -> str:
    from lakeproof.landing.zone import landing_zone

    zone = landing_zone(settings, stream, {} if program is Program.PRODUCER else None)
    if scheme_of(zone.root) == "s3":
        from lakeproof.storage.s3 import check_bucket

        check_bucket(zone.root, zone.s3)
        return zone.root
    path = local_path(zone.root)
    if program is Program.PRODUCER and not zone.is_own:
        _writable(path)
    elif not path.exists():
        if zone.is_own:  # below LAKE_LANDING, the first file creates it
            raise UnavailableError(
                f"There is no folder {path}, where {zone.given_by} says that files of {stream} land.",
                "Create or mount it, or correct the address.",
            )
        return f"{zone.root}, not there yet"
    elif not (path.is_dir() and os.access(path, os.R_OK | os.X_OK)):
        raise UnavailableError(f"Cannot list {path}, where files of {stream} land.", "Check its permissions.")
    return zone.root


def _asked_for_port(settings: Settings) -> bool:
    return "ui_port" in settings.spark.model_fields_set


def _contracts(folder: Path) -> str:
    names = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
    if not names:
        raise UsageError(
            f"No contracts found in {folder.absolute()}.",
            "Run in the project's folder, make one with `lakeproof init`, or set LAKE_CONTRACTS.",
        )
    return names


def find_java() -> tuple[Path, int]:
    """Return path and version of the Java that Spark runs."""
    home = os.environ.get("JAVA_HOME")  # like Spark
    java = shutil.which(f"{home}/bin/java" if home else "java")
    hint = "Install JDK 17 or 21, or set JAVA_HOME to the folder of one."
    if java is None:
        raise UnavailableError(f"Java not found{f' in JAVA_HOME ({home})' if home else ''}.", hint)
    found = _JAVA_VERSION.search(_java_release(Path(java)))
    if found is None:
        raise UnavailableError(f"Cannot determine the Java version of {java}.", hint)
    if not _OLDEST_JAVA <= int(found[1]) <= _NEWEST_JAVA:
        raise UnavailableError(
            f"{java} is Java {found[1]}, but Spark runs on Java {_OLDEST_JAVA} to {_NEWEST_JAVA}.", hint
        )
    return Path(java), int(found[1])


def _java() -> str:
    java, version = find_java()
    return f"Java {version} at {java}"


def _java_release(java: Path) -> str:
    """Return a text with Java's version, if possible from its file `release`, to avoid starting a JVM."""
    try:
        return (java.resolve().parents[1] / "release").read_text()
    except OSError:
        try:
            return subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
        except (OSError, subprocess.TimeoutExpired):
            return ""


def _spark() -> str:
    """Check the Spark that PySpark starts, which may be one of the user's shell."""
    installed, release = pyspark_folder(), version("pyspark")
    home = os.environ.get("SPARK_HOME")
    if home is not None and not is_submitted() and not any(Path(home, "jars").glob(f"spark-core_*-{release}.jar")):
        raise UsageError(f"SPARK_HOME is {home!r}, which is not Spark {release}, like PySpark.", "Unset SPARK_HOME.")
    return f"{release} at {home or installed}"


def _jars(folder: Path) -> str:
    count = len(list(folder.glob("*.jar")))
    if not count:
        raise UnavailableError(f"No jars found in {folder.absolute()}.", "Run `lakeproof setup`, or set LAKE_JARS.")
    return f"{count} in {folder}"


def _judge(settings: Settings) -> str:
    choice = judge_choice(settings.judge)
    return f"{choice}, which is slower: {choice.why}" if choice.why else str(choice)


def _of_collector(settings: Settings) -> list[Check]:
    """Return the checks of the collector, which starts without a broker and waits for one."""
    own = settings.collector
    where = f"{own.host} port {own.port}"
    checks = [
        Check("collector port", lambda: _port(own.host, own.port, where, "LAKE_COLLECTOR_PORT")),
        Check("open files", lambda: _open_files(own.max_connections), optional=True),
        Check("Kafka", lambda: _brokers(settings.kafka.bootstrap_servers), optional=True),
    ]
    keys = own.keys
    return [*checks, Check("API keys", lambda: _readable(keys))] if keys else checks


def _open_files(connections: int) -> str:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < connections:
        raise UnavailableError(
            f"`ulimit -Hn` allows {most:,} open files, but LAKE_COLLECTOR_MAX_CONNECTIONS is {connections:,}.",
            "Raise the limit, or accept fewer connections.",
        )
    return f"enough for {connections:,} connections"


def _brokers(servers: str) -> str:
    """Check that a broker accepts connections, without a login."""
    why = ""
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS):
                return server.strip()
        except (OSError, ValueError) as error:
            why = str(getattr(error, "strerror", None) or error)
    raise UnavailableError(
        f"No Kafka broker responds at {servers}: {why}.", "Start one, or check LAKE_KAFKA_BOOTSTRAP_SERVERS."
    )


def _readable(file: Path) -> str:
    try:
        file.read_bytes()
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}.", "Check LAKE_COLLECTOR_KEYS.") from error
    return str(file)


def _ui_port(settings: Settings) -> str:
    return _port(
        "127.0.0.1", settings.spark.ui_port, f"port {settings.spark.ui_port} for the Spark UI", "LAKE_SPARK_UI_PORT"
    )


def _port(host: str, port: int, what: str, variable: str) -> str:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just closed is free
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UnavailableError(
                f"Cannot use {what}: {error.strerror}.",
                f"Stop the program that uses it, or set {variable} to another port (0: any free port).",
            ) from error
    return str(port or "any")


def _location(name: str, uri: str, settings: Settings, writes: bool) -> Check:
    def look() -> str:
        if scheme_of(uri) == "s3":
            from lakeproof.storage.s3 import check_bucket

            check_bucket(uri, settings.s3)
        elif writes:  # only the landing zone's address is percent-encoded
            _writable(local_path(uri) if name == _LANDING else Path(uri.removeprefix("file://")))
        return uri

    return Check(name, look)


def _catalog(settings: Settings, program: Program) -> Check:
    def namespaces() -> str:
        with catalog_errors():  # the client of a REST catalog may be open already
            return str(open_catalog(settings).list_namespaces())

    if program is Program.CONSUMER or sqlite_path(settings.catalog.uri) is None:
        return _database("catalog", settings.catalog.uri, namespaces)
    return Check("catalog", lambda: settings.catalog.uri)


def _state(settings: Settings) -> None:
    from lakeproof.state.database import check_server

    check_server(settings.state.database)


def _database(name: str, uri: str, connect: Callable[[], object]) -> Check:
    """Check that a SQLite file is writable, or that a database server answers."""

    def look() -> str:
        if path := sqlite_path(uri):
            _writable(path.parent)
        else:
            connect()
        return without_password(uri)

    return Check(name, look)


def _writable(folder: Path) -> str:
    """Try to write into `folder` or its parent: permissions do not show full or read-only disks."""
    nearest = folder
    try:
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"lakeproof")
            file.flush()
    except OSError as error:
        raise full_disk(error, folder) or UnavailableError(
            f"Cannot write to the folder {folder}: {nearest}: {error.strerror}.",
            _PERMISSIONS,
        ) from error
    return str(folder)
