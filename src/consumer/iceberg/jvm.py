"""Iceberg's own classes and collections in the JVM, with few calls and no lookups that fail."""

from typing import Any

from pyspark.sql import SparkSession


def java_class(spark: SparkSession, name: str) -> Any:
    """Find a class of the JVM by its full name.

    ``jvm.org.apache.iceberg`` would ask for each part of the name, and the JVM would look for each of them in all jars,
    in each package that PySpark imports.
    """
    return getattr(spark._jvm, name)


def elements(collection: Any) -> list[Any]:
    """The elements of a Java collection.

    An iteration in Python would end with an exception of the JVM, which PySpark looks at with dozens of calls.
    """
    array = collection.toArray()
    return [array[index] for index in range(len(array))]
