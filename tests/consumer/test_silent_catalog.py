"""A catalog that takes connections and never answers: Spark gives up, and its error is an outage."""

import socket

import pytest
from pyspark.sql import SparkSession

from consumer.iceberg.jvm import failed_outside
from lakeproof.catalog import spark_properties
from lakeproof.settings import settings_of


@pytest.mark.parametrize(
    ("kind", "uri", "timeout", "shortest"),
    [
        ("rest", "http://{}", "rest.client.socket-timeout-ms", "500"),
        ("sql", "postgresql://me:it@{}/lake", "jdbc.socketTimeout", "1"),
    ],
)
def test_spark(spark: SparkSession, kind: str, uri: str, timeout: str, shortest: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
        properties = spark_properties(settings_of({"LAKE_CATALOG": kind, "LAKE_CATALOG_URI": uri.format(address)}))
        assert int(properties[f"spark.sql.catalog.lake.{timeout}"]) > 0
        properties[f"spark.sql.catalog.lake.{timeout}"] = shortest
        session = spark.newSession()
        for name, value in properties.items():
            if name.startswith("spark.sql.catalog.lake"):
                session.conf.set(name.replace("catalog.lake", f"catalog.silent_{kind}"), value)
        with pytest.raises(Exception, match=r"(?i)timed out|connection attempt failed") as caught:
            session.sql(f"SHOW NAMESPACES IN silent_{kind}")
    assert failed_outside(caught.value)
