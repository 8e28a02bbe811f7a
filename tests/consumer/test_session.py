"""How Spark is started."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_workers_run_this_python_with_the_installed_pyspark(spark: SparkSession) -> None:
    def describe(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        yield pa.RecordBatch.from_pylist([{"prefix": sys.prefix, "pyspark": pyspark.__file__}])

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(describe, "prefix string, pyspark string").collect()  # type: ignore[arg-type]
    assert row.prefix == sys.prefix
    assert ".zip" not in row.pyspark


def listening_addresses(process: psutil.Process) -> set[str]:
    return {
        connection.laddr.ip for connection in process.net_connections("tcp") if connection.status == psutil.CONN_LISTEN
    }


def test_spark_listens_on_this_machine_only(spark: SparkSession) -> None:
    gateway: Any = SparkContext._gateway
    jvm = psutil.Process(gateway.proc.pid)
    listening = listening_addresses(jvm)
    assert listening
    for worker in jvm.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a worker of an earlier test that ends just now
            listening |= listening_addresses(worker)
    assert all(ip.removeprefix("::ffff:") in {"127.0.0.1", "::1"} for ip in listening), listening
