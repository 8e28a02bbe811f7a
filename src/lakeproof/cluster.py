"""Spark clusters: the places that executors must reach, and the properties that they start with."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

from lakeproof.addresses import as_uri, encoded, sqlite_path
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.settings import Settings
from lakeproof.storage.local import local_path

QUICK_PYTHON = files("consumer.spark") / "worker.sh"
"""Script that starts the driver's Python as a Spark worker."""
SAME = ("lakeproof", "msgspec", "pyarrow", "pyiceberg", "pyiceberg-core")
"""Packages that read pickles of the driver, or write and hash rows: they need the same version everywhere."""
MISSING = "missing"
"""The version of a package that is not installed."""
_UNPACKED = "lakeproof-environment"  # folder into which an executor unpacks its Python packages
_OF_DRIVER = ("sqlite-jdbc", "postgresql", "hadoop-", "spark-hadoop-cloud", "wildfly")
"""Prefixes of the names of jars that only a driver uses, for catalogs and checkpoints."""


def is_submitted() -> bool:
    """Whether spark-submit has started this program, beside a JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def places_of(settings: Settings) -> dict[str, str]:
    """Return the addresses of a lake's folders and databases by setting, without landing zones."""
    places = {
        "LAKE_CHECKPOINTS": encoded(settings.state.checkpoints),
        "LAKE_CATALOG_URI": settings.catalog.uri,
        "LAKE_LANDING_LOG_URI": settings.state.database,
    }
    if settings.catalog.kind == "sql":  # the server of a REST catalog says where tables are
        places["LAKE_WAREHOUSE"] = encoded(settings.catalog.warehouse_uri)
    return places


def check_reachable(settings: Settings, places: Mapping[str, str]) -> str:
    """Refuse places that the executors of a cluster cannot see; otherwise, return the master.

    `places` are percent-encoded addresses of folders and databases, by the setting or option that names them.
    """
    own, shared = settings.spark, list(filter(None, (settings.spark.shared or "").split(",")))
    if not own.is_remote:
        return own.master
    unseen = [
        f"{name} ({path})"
        for name, uri in places.items()
        if (path := sqlite_path(uri) or (local_path(uri) if uri.startswith("file:") else None))
        and not _is_shared(path, shared)
    ]
    if unseen:
        raise UsageError(
            f"The tasks of {own.master} run on other machines, which do not see {', '.join(unseen)}.",
            "Set what is a folder to an s3:// address, and what is a database to a postgresql:// address. Or list the "
            "folders that all machines mount at the same path in LAKE_SPARK_SHARED.",
        )
    if own.environment and "://" not in own.environment and not Path(own.environment).is_file():
        raise UsageError(
            f"LAKE_SPARK_ENVIRONMENT: {own.environment} is not a file.",
            f"Make it: lakeproof cluster pack {own.environment}",
        )
    return own.master


def _is_shared(path: Path, shared: Sequence[str]) -> bool:
    """Whether a path is in a shared folder, both as written and once symbolic links are followed."""
    return all(
        any(Path(found(path)).is_relative_to(found(folder)) for folder in shared)
        for found in (os.path.abspath, os.path.realpath)
    )


@cache
def installed() -> dict[str, str]:
    """Return the versions of :data:`SAME` in this process."""
    return {name: version_of(name) for name in SAME}


def version_of(name: str) -> str:
    """Return the version of a package, or :data:`MISSING`."""
    try:
        return version(name)
    except PackageNotFoundError:
        return MISSING


def check_like_driver(ours: Mapping[str, str]) -> None:
    """Refuse to work in a task if packages differ from the driver's: its executor may have joined after the start."""
    theirs = installed()
    if theirs != ours:
        raise unlike(socket.gethostname(), ours, {name: theirs[name] for name in ours if theirs[name] != ours[name]})


def unlike(host: str, ours: Mapping[str, str], wrong: Mapping[str, str]) -> UsageError:
    """Return the error for packages of an executor that differ from the driver's."""
    listed = ", ".join(f"{name} is {found}, not {ours[name]}" for name, found in wrong.items())
    return UsageError(
        f"The Python of the executor on {host} is not like the driver's: {listed}.",
        "Install the same there, or set LAKE_SPARK_PYTHON to one that has it. Or send yours: `lakeproof cluster pack "
        "environment.tar.gz`, then LAKE_SPARK_ENVIRONMENT=environment.tar.gz",
    )


def executor_properties(settings: Settings) -> dict[str, str]:
    """Return the Spark properties of executors that are set explicitly."""
    own, asked = settings.spark, settings.spark.model_fields_set
    found = {
        "spark.executor.instances": own.executors,
        "spark.executor.cores": own.executor_cores,
        # A standalone master computes the number of executors from the cores.
        "spark.cores.max": own.executors * own.executor_cores if own.executors and own.executor_cores else None,
        "spark.executor.memory": own.executor_memory if "executor_memory" in asked else None,
        "spark.executor.memoryOverhead": own.executor_overhead,
    }
    if own.environment:
        # Not as a path: behind a space, Spark takes # for a part of the name.
        found["spark.archives"] = f"{as_uri(own.environment)}#{_UNPACKED}"
        found["spark.executorEnv.PYTHONPATH"] = _UNPACKED
    return {name: str(value) for name, value in found.items() if value is not None}


def executor_defaults(settings: Settings) -> dict[str, str]:
    """Return the Spark properties of executors that apply unless set elsewhere, also in Spark's own files."""
    own = settings.spark
    return {
        "spark.executor.memory": own.executor_memory,
        # Tasks run in Python, and an executor without memory for Python is killed. Spark's default is a tenth.
        "spark.executor.memoryOverhead": f"{own.executor_cores or 1}g",
    }


def jars_of_executors(jars: Sequence[str]) -> list[str]:
    """Return the jars that executors need, too: to read tables and topics in Spark."""
    return [jar for jar in jars if not Path(jar).name.startswith(_OF_DRIVER)]


def find_jars(settings: Settings) -> list[str]:
    """Return the jars that Spark starts with."""
    jars = [str(jar) for jar in sorted(settings.spark.jars.absolute().glob("*.jar"))]
    if not jars:
        raise UnavailableError(
            f"There are no jars in {settings.spark.jars}.", "Run `lakeproof setup`, or set LAKE_JARS."
        )
    return jars


def driver_options(settings: Settings) -> list[str]:
    """Return the options with which the driver's JVM writes its log to a file, and ends when it is out of memory."""
    return [
        # Otherwise only the thread ends, even of Spark's own, and a micro-batch waits for it forever.
        "-XX:+ExitOnOutOfMemoryError",
        # Each thread would keep a buffer outside the heap as large as the largest file that it has written.
        "-Djdk.nio.maxCachedBufferSize=1048576",
        f"-Dlog4j2.configurationFile={files('consumer.spark') / 'log4j2.properties'}",
        f"-Dlakeproof.logs={settings.logs}",
        f"-Dlakeproof.logs.pattern={str(settings.logs).replace('%', '%%')}",
    ]


def class_paths(jars: Sequence[str], *, is_remote: bool) -> dict[str, str]:
    """Return the Spark properties that give the jars to the driver, and to executors on other machines."""
    own = {"spark.driver.extraClassPath": os.pathsep.join(jars)}
    return own | ({"spark.jars": ",".join(jars_of_executors(jars))} if is_remote else {})


def quoted_option(option: str) -> str:
    """Quote a JVM option for a list of options that Spark splits."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def submit_properties(settings: Settings) -> dict[str, str]:
    """Return the properties that spark-submit needs, since they cannot change once its JVM runs."""
    return {
        **class_paths(find_jars(settings), is_remote=True),
        "spark.driver.extraJavaOptions": " ".join(map(quoted_option, driver_options(settings))),
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": settings.spark.python_of_executors,
        # Not the defaults: the session sets them, unless a file of Spark does.
        **executor_properties(settings),
    }
