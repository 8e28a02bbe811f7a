"""A cluster of Spark's: what its executors must reach, and the properties that they start with."""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from lakeproof.addresses import encoded, sqlite_path
from lakeproof.errors import UnavailableError, UsageError
from lakeproof.settings import Settings
from lakeproof.storage.local import local_path

QUICK_PYTHON = files("consumer") / "worker.sh"
"""What starts the Python of the driver as a worker of Spark's."""
_UNPACKED = "lakeproof-environment"  # folder that an executor unpacks its Python packages to
_OF_DRIVER = ("sqlite-jdbc", "postgresql", "hadoop-", "spark-hadoop-cloud", "wildfly")
"""Beginnings of the names of jars that only a driver uses: for catalogs and checkpoints."""


def is_submitted() -> bool:
    """Whether a spark-submit has started this program, beside a JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def python_beside_driver(settings: Settings) -> str | None:
    """The Python of what Spark runs beside the driver, where it is not that of the tasks."""
    if not settings.spark.is_remote:
        return None
    # The script is for JVMs that this program has started: it reads a variable of theirs.
    return str(QUICK_PYTHON) if settings.spark.takes("workers") and not is_submitted() else sys.executable


def places_of(settings: Settings) -> dict[str, str]:
    """What a lake consists of beside landing zones, by settings: addresses of folders and databases."""
    places = {
        "LAKE_CHECKPOINTS": encoded(settings.state.checkpoints),
        "LAKE_CATALOG_URI": settings.catalog.uri,
        "LAKE_LANDING_LOG_URI": settings.state.database,
    }
    if settings.catalog.kind == "sql":  # the server of a REST catalog says where tables are
        places["LAKE_WAREHOUSE"] = encoded(settings.catalog.warehouse_uri)
    return places


def check_reachable(settings: Settings, places: Mapping[str, str]) -> str:
    """Refuse places that the executors of a cluster cannot see; say which master it is otherwise.

    Parameters
    ----------
    settings
        With the master that runs the tasks.
    places
        Percent-encoded addresses of folders and databases, by the setting or option that names them.
    """
    own, shared = settings.spark, (settings.spark.shared or "").split(",")
    if not own.is_remote:
        return own.master
    unseen = [
        f"{name} ({path})"
        for name, uri in places.items()
        if (path := sqlite_path(uri) or (local_path(uri) if uri.startswith("file:") else None))
        and not any(folder and path.is_relative_to(folder) for folder in shared)
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


def executor_properties(settings: Settings) -> dict[str, str]:
    """Spark's properties of executors that somebody has asked for."""
    own, asked = settings.spark, settings.spark.model_fields_set
    found = {
        "spark.executor.instances": own.executors,
        "spark.executor.cores": own.executor_cores,
        # How many a standalone master starts, it computes from the cores.
        "spark.cores.max": own.executors * own.executor_cores if own.executors and own.executor_cores else None,
        "spark.executor.memory": own.executor_memory if "executor_memory" in asked else None,
        "spark.executor.memoryOverhead": own.executor_overhead,
    }
    if own.environment:
        found["spark.archives"] = f"{own.environment}#{_UNPACKED}"
        found["spark.executorEnv.PYTHONPATH"] = _UNPACKED
    return {name: str(value) for name, value in found.items() if value is not None}


def executor_defaults(settings: Settings) -> dict[str, str]:
    """Spark's properties of executors for which nobody has asked for anything else, also not in Spark's own files."""
    own = settings.spark
    return {
        "spark.executor.memory": own.executor_memory,
        # Tasks work in Python, and an executor that has no room for it is killed. Spark's default is a tenth.
        "spark.executor.memoryOverhead": f"{own.executor_cores or 1}g",
    }


def jars_of_executors(jars: Sequence[str]) -> list[str]:
    """The jars that executors need as well: to read tables and topics in Spark."""
    return [jar for jar in jars if not Path(jar).name.startswith(_OF_DRIVER)]


def find_jars(settings: Settings) -> list[str]:
    """The jars that Spark starts with."""
    jars = [str(jar) for jar in sorted(settings.spark.jars.absolute().glob("*.jar"))]
    if not jars:
        raise UnavailableError(
            f"There are no jars in {settings.spark.jars}.", "Run `lakeproof setup`, or set LAKE_JARS."
        )
    return jars


def log_options(settings: Settings) -> list[str]:
    """Options of the driver's JVM that let it write its log to a file."""
    return [
        f"-Dlog4j2.configurationFile={files('consumer') / 'log4j2.properties'}",
        f"-Dlakeproof.logs={settings.logs}",
        f"-Dlakeproof.logs.pattern={str(settings.logs).replace('%', '%%')}",
    ]


def class_paths(jars: Sequence[str], *, is_remote: bool) -> dict[str, str]:
    """Spark's properties that let the driver, and executors if they are elsewhere, have the jars."""
    own = {"spark.driver.extraClassPath": os.pathsep.join(jars)}
    return own | ({"spark.jars": ",".join(jars_of_executors(jars))} if is_remote else {})


def quoted_option(option: str) -> str:
    """A JVM's option as Spark splits a list of them."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def submit_properties(settings: Settings) -> dict[str, str]:
    """What a spark-submit has to be given beside its own options: what is fixed once its JVM runs."""
    return {
        **class_paths(find_jars(settings), is_remote=True),
        "spark.driver.extraJavaOptions": " ".join(map(quoted_option, log_options(settings))),
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": settings.spark.python_of_executors,
        **executor_defaults(settings),
        **executor_properties(settings),
    }
