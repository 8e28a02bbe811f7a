"""Access to the JVM beyond PySpark's interface: classes, collections, sessions and errors."""

from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import Any

from py4j.java_gateway import JavaMember, java_import
from py4j.protocol import STATIC_PREFIX, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

# Java exceptions of disks, networks, databases, catalogs and S3.
_OUTSIDE = (
    "java.io.IOException",
    "java.sql.SQLException",
    "org.apache.iceberg.exceptions.CommitStateUnknownException",
    "org.apache.iceberg.exceptions.RESTException",
    "software.amazon.awssdk.core.exception.SdkException",
)

MISSING = (
    "org.apache.iceberg.exceptions.NotFoundException",
    "java.nio.file.NoSuchFileException",
    "java.io.FileNotFoundException",
)
"""Exceptions for a missing file."""


_OF_EACH_JOB = (
    "org.apache.spark.api.python.PythonRDD",
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.api.python.SimplePythonFunction",
)
_INVALID = "java.lang.IllegalArgumentException"
_SPARK = "org.apache.spark.SparkException"


def java_class(spark: SparkSession, name: str) -> Any:
    """Find a class of the JVM by its full name."""
    return _class_of(spark._jvm, name)


@cache  # each search is a call to the JVM
def _class_of(jvm: Any, name: str) -> Any:
    # `jvm.org.apache.iceberg` would look up each part of the name, and the JVM would search for it in all jars, in each
    # package that PySpark imports.
    return getattr(jvm, name)


def import_classes(spark: SparkSession) -> None:
    """Import classes by name that PySpark uses for each job without their package.

    For such a class, the JVM would search in all jars for each package before, of those that PySpark imports.
    """
    for name in _OF_EACH_JOB:
        java_import(spark._jvm, name)


def static_method(spark: SparkSession, name: str, method: str) -> Any:
    """Return a static method of a class that may also have a method of this name for its objects.

    As an attribute of the class, Py4J says that it does not exist if the JVM lists the other method first, in an order
    that may change from start to start.
    """
    gateway: Any = spark.sparkContext._gateway
    return JavaMember(method, None, STATIC_PREFIX + name, gateway._gateway_client)


def elements(collection: Any) -> list[Any]:
    """Return the elements of a Java collection."""
    # Iteration in Python would end with an exception of the JVM, which PySpark examines with dozens of calls.
    array = collection.toArray()
    return [array[index] for index in range(len(array))]


def long_array(spark: SparkSession, big_endian: bytes) -> Any:
    """Return a Java array of longs, passed at once: one by one, a million longs would take minutes."""
    gateway: Any = spark.sparkContext._gateway
    numbers = gateway.new_array(java_class(spark, "long"), len(big_endian) // 8)
    java_class(spark, "java.nio.ByteBuffer").wrap(big_endian).asLongBuffer().get(numbers)
    return numbers


def cloned_session(spark: SparkSession) -> SparkSession:
    """Return a session with the current settings and its own later ones, like Spark's for each streaming query."""
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def activate(spark: SparkSession) -> None:
    """Make a session the current one of this thread: Iceberg gets its catalogs from the thread's session."""
    java_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)


def trigger_in_real_time(writer: DataStreamWriter, spark: SparkSession, checkpoint_every: str) -> None:
    """Let a streaming query process each message as it arrives, a trigger that PySpark lacks."""
    trigger = java_class(spark, "org.apache.spark.sql.streaming.Trigger")
    writer._jwrite.trigger(trigger.RealTime(checkpoint_every))


def exception_class(error: Py4JJavaError) -> str:
    """Return the full class name of a JVM exception."""
    return str(error.java_exception.getClass().getName())


def failed_outside(error: Exception) -> bool:
    """Return whether a disk, a network, a database, a catalog or S3 failed."""
    return any(name in _OUTSIDE for name in _exception_classes(error))


def is_missing(error: Exception) -> bool:
    """Return whether a file is missing."""
    return any(name in MISSING for name in _exception_classes(error))


def is_invalid(error: Exception) -> bool:
    """Return whether an argument was invalid: so Iceberg calls metadata that it refuses."""
    return _INVALID in _exception_classes(error)


def is_cancelled(error: Exception) -> bool:
    """Return whether Spark's jobs were cancelled."""
    return any(
        _SPARK in _classes_of(cause) and cause.getCondition() == "SPARK_JOB_CANCELLED" for cause in _causes(error)
    )


def _exception_classes(error: Exception) -> Iterator[str]:
    """Yield the class names of a JVM exception and its causes, with all their superclasses."""
    return chain.from_iterable(map(_classes_of, _causes(error)))


def _causes(error: Exception) -> Iterator[Any]:
    """Yield a JVM exception and its causes."""
    cause: Any = None
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
    elif isinstance(error, CapturedException):
        cause = error._origin
    while cause is not None:
        yield cause
        cause = cause.getCause()


def _classes_of(cause: Any) -> Iterator[str]:
    java = cause.getClass()
    while java is not None:
        yield java.getName()
        java = java.getSuperclass()


def first_cause(error: BaseException) -> str:
    """Return one line of an error; for an error of the JVM, its root cause."""
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
    else:
        text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        # A worker's error, which Spark has only as text: the last line without indentation has the exception.
        raised = [line for line in text.splitlines() if line and not line.startswith(" ")][-1]
        name, colon, what = raised.partition(": ")
        return name.rpartition(".")[2] + colon + what
    return (text or type(error).__name__).splitlines()[0]
