"""The process from which Spark's Python workers are forked.

It imports the modules of tasks once, so that no worker has to. It also avoids work that Spark's workers do for each
task, and that took longer than a small task itself: garbage collection of all imported objects, and reading the
directories of Spark's jars, which are on the path but have no Python.

The driver starts this process beside the JVM, with a listening socket: the imports take a second. When the JVM starts
its daemon, ``hand_over.py`` passes the daemon's streams and environment to this process, which becomes the daemon.
"""

import gc
import json
import os
import select
import socket
import sys
from pathlib import Path

import pyiceberg.io.pyarrow  # noqa: F401
from pyspark import daemon

import consumer.layers.bronze.tasks
import consumer.layers.gold.tasks
import consumer.layers.samples.sample
import consumer.layers.silver.tasks
import consumer.modes.tasks  # noqa: F401
from lakeproof.cluster import installed

# Number of new objects that starts a garbage collection in a worker: messages come by tens of thousands, and have no
# cycles.
_NEW_OBJECTS = 100_000
_STREAMS = 3


def take_over(listening: socket.socket) -> None:
    """Wait for the daemon that the JVM starts, and become it; end if the driver ends before."""
    path = Path(listening.getsockname())
    ready, _, _ = select.select([sys.stdin, listening], [], [])
    path.unlink()
    path.parent.rmdir()
    if listening not in ready:
        sys.exit()
    connection, _ = listening.accept()
    listening.close()
    message, streams, _, _ = socket.recv_fds(connection, 1 << 16, _STREAMS)
    while not message.endswith(b"\n"):
        more = connection.recv(1 << 16)
        if not more:  # the sender was killed: the JVM starts a daemon itself
            sys.exit(1)
        message += more
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(json.loads(message))
    os.nice(int(os.environ.get("LAKEPROOF_NICENESS", "0")))
    sys.path += [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    connection.send(b"1")
    connection.detach()  # open until this process ends


def main() -> None:
    """Run the daemon."""
    installed()  # records the imported versions: packages may be replaced before a worker is forked
    if sys.argv[1] != "pyspark.worker":
        take_over(socket.socket(fileno=int(sys.argv[1])))
    sys.path[:] = [path for path in sys.path if ".jar" not in path]
    for path in [path for path in sys.path_importer_cache if ".jar" in path]:
        del sys.path_importer_cache[path]
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
