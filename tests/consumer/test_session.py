"""How Spark is started."""

import sys
from contextlib import suppress
from typing import Any

import psutil
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_workers_run_this_python_with_the_installed_pyspark(spark: SparkSession) -> None:
    def describe(_: int) -> tuple[str, str]:
        import pyspark

        return sys.prefix, pyspark.__file__

    ((prefix, package),) = spark.sparkContext.parallelize([0], 1).map(describe).collect()
    assert prefix == sys.prefix
    assert ".zip" not in package


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
