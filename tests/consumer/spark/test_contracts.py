"""Private parts of Spark and Py4J that consumer/spark/session.py and cluster.py rely on.

Each one has a test. If a test fails after an upgrade, `LAKE_SPARK_WITHOUT` turns the shortcut off until it is fixed.
"""

import inspect
import json
from itertools import pairwise
from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaGateway
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from consumer.iceberg.jvm import java_class
from lakeproof.checkpoint import CheckpointWriter, checkpoint_folder
from lakeproof.settings import Settings
from lakeproof.storage.local import local_path

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


def test_errors_of_the_accumulators_server_can_be_silenced(spark: SparkSession) -> None:
    """Relies on ``SparkContext._accumulatorServer``, which would print a stack trace when the JVM has ended."""
    server: Any = spark.sparkContext._accumulatorServer
    assert "handle_error" in vars(server)
    assert server.handle_error(None, None) is None


def test_the_server_of_accumulators_can_end_beside_the_session(spark: SparkSession) -> None:
    """``SparkContext.stop`` shuts down ``_accumulatorServer`` unless it is None, as after its end."""
    source = inspect.getsource(SparkContext.stop)
    assert 'getattr(self, "_accumulatorServer", None)' in source
    assert "self._accumulatorServer = None" in source


def test_classes_that_pyspark_names_without_their_package_are_found(spark: SparkSession) -> None:
    """PySpark calls them for each job; see ``import_classes``."""
    for name in ("PythonRDD", "PythonUtils", "SimplePythonFunction"):
        assert getattr(spark._jvm, name)._fqn == f"org.apache.spark.api.python.{name}"


def test_py4j_logs_to_the_root_logger() -> None:
    """Py4J calls ``logging.info`` in its module java_gateway: the filter on the root logger checks the module."""
    import py4j.java_gateway as module

    assert "logging.info(" in inspect.getsource(module), "session.py filters the root logger for this"
    assert module.__name__.rpartition(".")[2] == "java_gateway"


def test_the_daemon_of_workers_can_be_started_by_another_module() -> None:
    """Relies on ``pyspark.daemon.manager``: worker_daemon.py calls it after importing what tasks need."""
    from pyspark import daemon

    assert inspect.signature(daemon.manager).parameters == {}


@pytest.mark.parametrize("number", [0, 7])
def test_spark_reads_the_checkpoints_that_we_write(spark: SparkSession, lake_settings: Settings, number: int) -> None:
    """A lake can go back to a version whose micro-batches Spark forms."""
    writer = CheckpointWriter(lake_settings, "bronze-events", json.loads)
    offsets = [json.dumps({"seq": each}) for each in range(number + 2)]
    for start, end in pairwise(offsets):
        writer.begin(start, end)
        writer.commit()
    our_id = writer.id
    folder = local_path(checkpoint_folder(lake_settings, "bronze-events"))
    package, session = "org.apache.spark.sql.execution.streaming.checkpointing", spark._jsparkSession
    for name, method in (("OffsetSeqLog", "offsets"), ("CommitLog", "commits")):
        log = java_class(spark, f"{package}.{name}")(session, str(folder / method))
        newest = log.getLatest().get()
        assert newest._1() == number
        if name == "OffsetSeqLog":
            assert newest._2().offsets().head().get().json() == offsets[-1]
    metadata = java_class(spark, "org.apache.spark.sql.execution.streaming.runtime.StreamMetadata").read(
        java_class(spark, "org.apache.hadoop.fs.Path")(str(folder / "metadata")),
        session.sessionState().newHadoopConf(),
    )
    assert metadata.get().id() == our_id
