"""The Kafka broker of the demo: one node in KRaft mode, with its data in a folder.

``python -m lakeproof.demo.broker FOLDER HOST:PORT JARS``
"""

import os
import socket
import subprocess
import sys
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
log.dirs={folder}/data
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
    properties = folder / "server.properties"
    # The controller is only for this broker. A port next to the broker's may be in use, even by an outgoing connection.
    with socket.create_server(("127.0.0.1", 0)) as server:
        controller = f"127.0.0.1:{server.getsockname()[1]}"
    properties.write_text(_PROPERTIES.format(folder=folder, address=address, controller=controller))
    # The jars for the broker's logging come with PySpark.
    logs = [path for name in ("slf4j-api", "log4j-slf4j2-impl") for path in pyspark_folder().glob(f"jars/{name}-*.jar")]
    classes = ":".join(str(path) for path in (*jars.glob("*.jar"), *logs))
    java = [str(find_java()[0]), *_OPTIONS, "-cp", classes]
    if not (folder / "data" / "meta.properties").exists():
        format_ = ["kafka.tools.StorageTool", "format", "--cluster-id", "lakeproof-demo-cluster", "--config"]
        subprocess.run([*java, *format_, str(properties)], check=True)
    os.execv(java[0], [*java, "kafka.Kafka", str(properties)])  # noqa: S606 - supervisord's signals go to the broker


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
