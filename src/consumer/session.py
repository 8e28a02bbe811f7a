"""The Spark session, configured in one place."""

import os
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from lakeproof.catalog import spark_properties
from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings

PLANNING_ONLY = ("-XX:TieredStopAtLevel=1",)
"""Options for a driver whose JVM plans and commits while Python workers carry the data.

Its second compiler would take processor time from them, as much as all the rest of the JVM over a backlog of 300 MB.
"""


def start_session(
    settings: Settings, name: str, java_options: Sequence[str] = (), archive_to: Path | None = None
) -> SparkSession:
    """Start Spark with the catalog ``lake`` in place.

    Parameters
    ----------
    settings
        Master, memory, jars and catalog.
    name
        Name of the application on Spark's page.
    java_options
        More options for the driver's JVM, as :data:`PLANNING_ONLY`.
    archive_to
        Where the JVM archives the classes that it has loaded when it ends; it then starts without an archive.

    Raises
    ------
    UnavailableError
        The jars are not there.
    """
    jars = [str(jar) for jar in sorted(settings.jars.absolute().glob("*.jar"))]
    if not jars:
        raise UnavailableError(f"There are no jars in {settings.jars}.", "Run `make setup`, or set LAKE_JARS.")
    settings.logs_dir.mkdir(parents=True, exist_ok=True)
    archive = class_archive(settings)
    jvm = [
        f"-Dlog4j2.configurationFile={files('consumer') / 'log4j2.properties'}",
        f"-Dlakeproof.logs={settings.logs_dir}",
        "-XX:+UseParallelGC",
        *java_options,
    ]
    if archive_to:
        jvm += [f"-XX:ArchiveClassesAtExit={archive_to}", "-Xlog:disable"]
    elif archive.exists():
        # Halves the start. A JVM that the archive was not made with ignores it.
        jvm += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    options = {
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in jvm),
        "spark.ui.port": str(settings.spark_ui_port),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        # Micro-batches are small: more partitions would only cost their scheduling.
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
    }
    if settings.spark_master.startswith("local"):
        # One machine: nothing to distribute, and nobody else's business.
        os.environ.setdefault("PYSPARK_PYTHON", str(files("consumer") / "worker.sh"))
        os.environ["LAKEPROOF_PYTHON"] = sys.executable
        options["spark.driver.extraClassPath"] = os.pathsep.join(jars)
        # Sets a file's permissions by a call; Hadoop's own class starts a process (chmod), 24 for a micro-batch.
        options["spark.hadoop.fs.file.impl"] = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        options["spark.jars"] = ",".join(jars)
    builder = SparkSession.builder.appName(name).master(settings.spark_master)
    for key, value in (options | spark_properties(settings)).items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise UnavailableError(
            f"Spark's JVM did not start: {error}.", "What it said stands above; see also `lakeproof doctor`."
        ) from error
    return session


def class_archive(settings: Settings) -> Path:
    """Path of the archive of the JVM classes that a start loads; it lies beside the folder of the jars."""
    return settings.jars.absolute().parent / "spark.jsa"
