"""The Kafka broker of the demo: one node in KRaft mode, with its data in a folder.

``python -m lakeproof.demo.broker``; DEMO_HOME has the folder of the lake, DEMO_BROKER the address, DEMO_JARS the jars.
"""

import os
import socket
import subprocess
from pathlib import Path

from lakeproof.doctor import find_java
from lakeproof.install.jars import pyspark_folder

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{address},CONTROLLER://{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.replication.factor=1
"""
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN")


def main(folder: Path, address: str, jars: Path) -> None:
    """Format the folder if needed, and replace this process by the broker."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = Path("server.properties")
    classes = ":".join(str(path) for path in (*jars.absolute().glob("*.jar"), *_logging()))
    os.chdir(folder)  # Kafka reads properties as Latin-1, and splits the paths of its data at commas
    # The controller is only for this broker. A port next to the broker's may be in use, even by an outgoing connection.
    with socket.create_server(("127.0.0.1", 0)) as server:
        controller = f"127.0.0.1:{server.getsockname()[1]}"
    properties.write_text(_PROPERTIES.format(address=address, controller=controller))
    java = [str(find_java()[0]), *_OPTIONS, "-cp", classes]
    if not Path("data", "meta.properties").exists():
        format_ = ["kafka.tools.StorageTool", "format", "--cluster-id", "lakeproof-demo-cluster", "--config"]
        subprocess.run([*java, *format_, str(properties)], check=True)
    os.execv(java[0], [*java, "kafka.Kafka", str(properties)])  # noqa: S606 - supervisord's signals go to the broker


def _logging() -> list[Path]:
    """Return the jars for the broker's logging, which come with PySpark."""
    return [path for name in ("slf4j-api", "log4j-slf4j2-impl") for path in pyspark_folder().glob(f"jars/{name}-*.jar")]


if __name__ == "__main__":
    main(Path(os.environ["DEMO_HOME"]) / "kafka", os.environ["DEMO_BROKER"], Path(os.environ["DEMO_JARS"]))
