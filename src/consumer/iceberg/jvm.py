"""The JVM beyond PySpark's interface: its classes, collections, sessions and errors. Only this room reaches there."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

# Java's errors of disks, networks, databases, catalogs and S3.
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
"""Errors of a file that is missing."""


_SPARK = "org.apache.spark.SparkException"


def java_class(spark: SparkSession, name: str) -> Any:
    """Find a class of the JVM by its full name."""
    # `jvm.org.apache.iceberg` would ask for each part of the name, and the JVM would look for each of them in all
    # jars, in each package that PySpark imports.
    return getattr(spark._jvm, name)


def elements(collection: Any) -> list[Any]:
    """The elements of a Java collection."""
    # An iteration in Python would end with an exception of the JVM, which PySpark looks at with dozens of calls.
    array = collection.toArray()
    return [array[index] for index in range(len(array))]


def long_array(spark: SparkSession, big_endian: bytes) -> Any:
    """A Java array of longs, passed at once: one by one, a million would take minutes."""
    gateway: Any = spark.sparkContext._gateway
    numbers = gateway.new_array(java_class(spark, "long"), len(big_endian) // 8)
    java_class(spark, "java.nio.ByteBuffer").wrap(big_endian).asLongBuffer().get(numbers)
    return numbers


def cloned_session(spark: SparkSession) -> SparkSession:
    """A session with the settings of now, and later ones of its own, as Spark gives each streaming query."""
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def activate(spark: SparkSession) -> None:
    """Make a session that of this thread: Iceberg asks the thread's session for its catalogs."""
    java_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)


def trigger_in_real_time(writer: DataStreamWriter, spark: SparkSession, checkpoint_every: str) -> None:
    """Let a streaming query take each message as it comes, for which PySpark has no name."""
    trigger = java_class(spark, "org.apache.spark.sql.streaming.Trigger")
    writer._jwrite.trigger(trigger.RealTime(checkpoint_every))


def exception_class(error: Py4JJavaError) -> str:
    """Full name of the class of the JVM's exception."""
    return str(error.java_exception.getClass().getName())


def failed_outside(error: Exception) -> bool:
    """Whether a disk, a network, a database, a catalog or S3 failed."""
    return any(name in _OUTSIDE for name in _exception_classes(error))


def is_missing(error: Exception) -> bool:
    """Whether a file is missing."""
    return any(name in MISSING for name in _exception_classes(error))


def is_cancelled(error: Exception) -> bool:
    """Whether Spark's jobs were cancelled."""
    return any(
        _SPARK in _classes_of(cause) and cause.getCondition() == "SPARK_JOB_CANCELLED" for cause in _causes(error)
    )


def _exception_classes(error: Exception) -> Iterator[str]:
    """The classes of a JVM's error, of what caused it, and of all that they inherit from."""
    return chain.from_iterable(map(_classes_of, _causes(error)))


def _causes(error: Exception) -> Iterator[Any]:
    """A JVM's error, and what caused it."""
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
    """One line of an error: of the JVM's, what caused it first."""
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
    else:
        text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        # A worker's, which Spark has as a text only: its last line that is not indented says what was raised.
        raised = [line for line in text.splitlines() if line and not line.startswith(" ")][-1]
        name, colon, what = raised.partition(": ")
        return name.rpartition(".")[2] + colon + what
    return (text or type(error).__name__).splitlines()[0]
