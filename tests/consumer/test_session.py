"""How Spark is started."""

import sys
from collections.abc import Iterator
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


def test_spark_listens_on_this_machine_only(spark: SparkSession) -> None:
    gateway: Any = SparkContext._gateway
    listening = {
        connection.laddr.ip
        for process in [psutil.Process(gateway.proc.pid), *psutil.Process(gateway.proc.pid).children(recursive=True)]
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening
    assert all(ip.removeprefix("::ffff:") in {"127.0.0.1", "::1"} for ip in listening), listening
