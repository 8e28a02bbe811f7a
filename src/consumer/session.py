"""The Spark session, configured in one place."""

import os
import sys
from importlib.resources import files

from pyspark.sql import SparkSession

from lakeproof.catalog import spark_properties
from lakeproof.errors import UnavailableError
from lakeproof.settings import Settings


def start_session(settings: Settings, name: str) -> SparkSession:
    """Start Spark with the catalog ``lake`` in place.

    Parameters
    ----------
    settings
        Master, memory, jars and catalog.
    name
        Name of the application on Spark's page.

    Raises
    ------
    UnavailableError
        The jars are not there.
    """
    jars = sorted(settings.jars.absolute().glob("*.jar"))
    if not jars:
        raise UnavailableError(f"There are no jars in {settings.jars}.", "Run `make setup`, or set LAKE_JARS.")
    settings.logs_dir.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log_settings = files("consumer") / "log4j2.properties"
    options = {
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={log_settings} -Dlakeproof.logs={settings.logs_dir} -XX:+UseParallelGC"
        ),
        "spark.ui.port": str(settings.spark_ui_port),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        # Micro-batches are small: more partitions would only cost their scheduling.
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
        # What is cached is read twice and thrown away: compressing it costs more than it saves.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
    }
    builder = SparkSession.builder.appName(name).master(settings.spark_master)
    for key, value in (options | spark_properties(settings)).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session
