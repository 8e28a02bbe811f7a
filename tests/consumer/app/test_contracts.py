"""Private parts of Spark and Py4J that consumer/app/session.py and cluster.py, and sources/files/stream.py, rely on.

Each one has a test. If a test fails after an upgrade, `LAKE_SPARK_WITHOUT` turns the shortcut off until it is fixed.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaGateway
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession, datasource_internal
from pyspark.sql.datasource import DataSource, DataSourceReader, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from consumer.iceberg.jvm import java_class
from consumer.sources.files.stream import _BesideDriver
from consumer.spreading import register_beside_driver

pytestmark = pytest.mark.spark

LOADED = {
    "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem": "spark.hadoop.fs.file.impl",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions": "spark.sql.extensions",
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager": (
        "spark.sql.streaming.checkpointFileManagerClass"
    ),
}
"""Classes that Spark settings name."""


@pytest.mark.parametrize("name", LOADED)
def test_a_class_that_a_setting_names_can_be_loaded(spark: SparkSession, name: str) -> None:
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    assert java_class(spark, "java.lang.Class").forName(name, False, loader).getName() == name
    assert spark.conf.get(LOADED[name]) == name


def test_the_gateway_is_launched_with_options_of_the_process() -> None:
    """The second parameter of ``launch_gateway`` goes to Popen, and the process is an attribute of the gateway."""
    assert list(inspect.signature(launch_gateway).parameters) == ["conf", "popen_kwargs"]


def test_a_context_takes_a_gateway_that_was_launched_and_keeps_it(spark: SparkSession) -> None:
    """``SparkContext._gateway`` and its ``proc`` are used to end the JVM and to wait for its end."""
    assert "gateway" in inspect.signature(SparkContext.__init__).parameters
    gateway: Any = SparkContext._gateway
    assert isinstance(gateway, JavaGateway)
    assert gateway.proc.poll() is None
    assert not gateway.proc.stdin.closed  # the JVM ends when it closes


def test_the_context_says_whether_its_jvm_has_ended(spark: SparkSession) -> None:
    """``SparkContext._active_spark_context`` is the context, whose ``_jsc`` is None after its end."""
    assert SparkContext._active_spark_context is spark.sparkContext
    assert getattr(spark.sparkContext, "_jsc", None) is not None


def test_executors_are_counted_and_run_a_program_without_workers_in_python(spark: SparkSession) -> None:
    """Relies on the context in the JVM; on one machine, the driver is the only executor."""
    context: Any = spark.sparkContext._jsc
    assert len(context.sc().statusTracker().getExecutorInfos()) == 1
    assert list(context.parallelize([1, 2], 2).pipe(["sh", "-c", "wc -l"]).collect()) == ["1", "1"]


def test_a_gateway_says_what_its_jvm_was_started_with(spark: SparkSession) -> None:
    """The gateway knows whether a class can be loaded, and Spark's properties from `spark-submit` and its files."""
    gateway: Any = SparkContext._gateway
    assert isinstance(getattr(gateway.jvm, "org.apache.iceberg.spark.SparkCatalog"), JavaClass)
    assert not isinstance(getattr(gateway.jvm, "org.apache.iceberg.spark.Nothing"), JavaClass)
    assert getattr(gateway.jvm, "java.lang.System").getProperty("spark.driver.memory") is not None
    assert getattr(gateway.jvm, "java.lang.System").getProperty("spark.nothing") is None


def test_a_data_source_is_registered_with_another_python(spark: SparkSession) -> None:
    """Relies on an attribute of the context: on a cluster, tasks have another Python than the driver's machine."""

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "with-another-python"

        def schema(self) -> str:
            return "a int"

        def reader(self, schema: StructType) -> DataSourceReader:
            raise NotImplementedError

    register_beside_driver(spark, Source, "/nowhere/python")
    with pytest.raises(Exception, match="/nowhere/python"):
        spark.read.format("with-another-python").load()
    assert spark.sparkContext.pythonExec != "/nowhere/python"


def test_rows_of_a_source_are_sent_along_if_its_wrapper_has_them() -> None:
    """Relies on ``_SimpleStreamReaderWrapper.getCache``: a task would read missing rows in the driver's Python."""
    import pyspark.sql.streaming.python_streaming_source_runner as runner

    sent = inspect.getsource(runner.partitions_func)
    assert "isinstance(reader, _SimpleStreamReaderWrapper)" in sent
    assert "it = reader.getCache(start_offset, end_offset)" in sent
    assert "return datasource.streamReader(schema=schema)" in inspect.getsource(datasource_internal._streamReader)

    class Source(SimpleDataSourceStreamReader):
        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:  # noqa: N802
            return iter((number,) for number in range(start["at"], end["at"]))

    reader = _BesideDriver(Source())
    assert list(reader.getCache({"at": 1}, {"at": 3})) == [(1,), (2,)]
    assert list(reader.getCache({"at": 3}, {"at": 3})) == []
    reader.cache = [datasource_internal.PrefetchedCacheEntry({"at": 3}, {"at": 5}, iter([(7,)]))]
    assert list(reader.getCache({"at": 3}, {"at": 5})) == [(7,)]


def test_errors_of_the_accumulators_server_can_be_silenced(spark: SparkSession) -> None:
    """Relies on ``SparkContext._accumulatorServer``, which would print a stack trace when the JVM has ended."""
    server: Any = spark.sparkContext._accumulatorServer
    assert "handle_error" in vars(server)
    assert server.handle_error(None, None) is None


def test_py4j_logs_to_the_root_logger() -> None:
    """Py4J calls ``logging.info`` in its module java_gateway: the filter on the root logger checks the module."""
    import py4j.java_gateway as module

    assert "logging.info(" in inspect.getsource(module), "session.py filters the root logger for this"
    assert module.__name__.rpartition(".")[2] == "java_gateway"


@pytest.mark.parametrize(
    ("name", "text"),
    [("ProgressContext", "Initializing StreamExecution"), ("StreamExecution", "Initializing sources")],
)
def test_spark_says_that_a_query_is_initializing_by_a_text_alone(spark: SparkSession, name: str, text: str) -> None:
    """Relies on ``StreamingQuery.status``: application.py waits for the first trigger, which asks no source.

    No other part of the status distinguishes a query that has not read its checkpoint from one that waits.
    """
    path = f"org/apache/spark/sql/execution/streaming/runtime/{name}.class"
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    assert text.encode() in bytes(loader.getResourceAsStream(path).readAllBytes())


def test_the_daemon_of_workers_can_be_started_by_another_module() -> None:
    """Relies on ``pyspark.daemon.manager``: consumer/app/worker_daemon.py calls it after importing what tasks need."""
    from pyspark import daemon

    assert inspect.signature(daemon.manager).parameters == {}


def test_spark_names_a_streaming_query_and_its_jobs_by_local_properties(spark: SparkSession) -> None:
    """Layers read these two properties of the thread: the id of the checkpoint, and the jobs of a micro-batch."""
    loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
    for name, text in (
        ("sql/execution/streaming/runtime/StreamExecution$", "sql.streaming.queryId"),
        ("SparkContext$", "spark.jobGroup.id"),
    ):
        content = loader.getResourceAsStream(f"org/apache/spark/{name}.class").readAllBytes()
        assert text.encode() in bytes(content), name
