"""Compile the tests' REST catalog, and archive the classes of the servers in Java, which halves their start.

``python -m tests.archives``, by tests/setup.sh, does so unless Java and the jars are those of the last time. A server
whose archive is missing or of other jars starts as well, only later.
"""

import os
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.servers import (
    KAFKA_JARS,
    MADE,
    REST_CATALOG,
    KafkaServer,
    RestCatalogServer,
    Server,
    archive_of,
    java,
    rest_catalog,
    rest_class_path,
)

from lakeproof.catalog import open_catalog
from lakeproof.settings import settings_of


def main() -> None:
    """Make what is missing, or was made of something else."""
    stamp, now = MADE / "stamp", _ingredients()
    if stamp.exists() and stamp.read_text() == now:
        return
    MADE.mkdir(parents=True, exist_ok=True)
    for made in MADE.iterdir():
        made.unlink()
    _compile()
    uses: Mapping[str, Callable[[Path], Server]] = {"kafka": _used_kafka, "rest": _used_catalog}
    for name, use in uses.items():
        with tempfile.TemporaryDirectory() as folder:
            os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:ArchiveClassesAtExit={MADE / 'new'}"
            use(Path(folder)).stop()
        (MADE / "new").rename(archive_of(name))
    stamp.write_text(now)


def _ingredients() -> str:
    version = subprocess.run([*java(), "-version"], capture_output=True, text=True, check=True).stderr
    jars = [*sorted(KAFKA_JARS.glob("*.jar")), *rest_class_path()]
    return "\n".join([version, rest_catalog().name, *(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)])


def _compile() -> None:
    compiler = [*java(), "--module", "jdk.compiler/com.sun.tools.javac.Main"]
    classes = os.pathsep.join(map(str, rest_class_path()))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*compiler, "-d", folder, "-cp", classes, str(REST_CATALOG)], check=True)
        # In a jar: classes in folders cannot be archived.
        with zipfile.ZipFile(rest_catalog(), "w") as jar:
            for path in Path(folder).iterdir():
                jar.write(path, path.name)


def _used_kafka(folder: Path) -> Server:
    server = KafkaServer(folder / "server")
    server.new_topic()
    return server


def _used_catalog(folder: Path) -> Server:
    warehouse = f"file://{folder}/warehouse"
    server = RestCatalogServer(folder / "server", warehouse)
    settings = {
        "LAKE_HOME": folder,
        "LAKE_CATALOG": "rest",
        "LAKE_CATALOG_URI": server.uri,
        "LAKE_WAREHOUSE": warehouse,
    }
    open_catalog(settings_of(settings)).create_namespace("bronze")
    return server


if __name__ == "__main__":
    main()
