"""The process from which Spark's Python workers are forked.

It imports the modules of tasks once, so that no worker has to. It also avoids work that Spark's workers do for each
task, and that took longer than a small task itself: garbage collection of all imported objects, and reading the
directories of Spark's jars, which are on the path but have no Python.
"""

import gc
import sys

import pyiceberg.io.pyarrow  # noqa: F401
from pyspark import daemon

import consumer.layers.bronze.tasks
import consumer.layers.gold.tasks
import consumer.layers.samples.sample
import consumer.layers.silver.tasks
import consumer.modes.tasks  # noqa: F401
from lakeproof.cluster import installed

if __name__ == "__main__":
    installed()  # records the imported versions: packages may be replaced before a worker is forked
    sys.path[:] = [path for path in sys.path if ".jar" not in path]
    for path in [path for path in sys.path_importer_cache if ".jar" in path]:
        del sys.path_importer_cache[path]
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]
