"""Class data archive for the consumer's JVM, which halves the time that Spark takes to start."""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from lakeproof.install.jars import hashes_of_spark, pyspark_folder


def archive_classes(java: Path, jars: Path) -> Path | None:
    """Make the archive if Java, PySpark or jars changed; return the log of a failed attempt."""
    stamp, log = jars.with_name("spark.jsa.stamp"), jars.with_name("archive.log")
    java_version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    made_with = "\n".join([java_version, version("pyspark"), str(pyspark_folder()), hashes_of_spark().read_text()])
    if stamp.exists() and stamp.read_text() == made_with:
        return None
    # In an empty folder and without other settings, so that no lake is changed.
    own = {name: value for name, value in os.environ.items() if not name.upper().startswith(("LAKE_", "AWS_"))}
    own["LAKE_JARS"] = str(jars)
    with tempfile.TemporaryDirectory(prefix="lakeproof-") as folder, log.open("wb") as output:
        command = [sys.executable, "-m", "consumer", "archive"]
        done = subprocess.run(command, cwd=folder, env=own, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        return log
    stamp.write_text(made_with)
    return None
