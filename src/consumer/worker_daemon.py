"""The process that Spark's Python workers are forked from.

It imports what tasks need once, so that no worker has to, and keeps that from the garbage collection which Spark's own
daemon does after each task: that took longer than a small task itself.
"""

import gc

import pyiceberg.io.pyarrow  # noqa: F401
from pyspark import daemon

import consumer.bronze.tasks
import consumer.silver.tasks  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]
