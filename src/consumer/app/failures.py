"""What to say when a query fails."""

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from consumer.app.session import first_cause
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandingLog
from lakeproof.storage.disk import full_disk, local_places

_OUTSIDE = (
    "java.io.IOException",
    "java.sql.SQLException",
    "org.apache.iceberg.exceptions.CommitStateUnknownException",
    "org.apache.iceberg.exceptions.RESTException",
    "software.amazon.awssdk.core.exception.SdkException",
)
"""Java's errors of disks, networks, databases, catalogs and S3."""


def explained(failure: Exception, settings: Settings, stream: str | None = None) -> LakeproofError:
    """Say why a query failed: what a micro-batch raised, what it depends on and is away, or what Spark says.

    Without a stream, it depends on no lake.
    """
    if isinstance(failure, LakeproofError):
        return failure
    if full := full_disk(failure, *local_places(settings)):
        return full
    if stream:
        try:  # what the query depends on may be away: that is clearer than what two languages say of it
            open_catalog(settings).list_namespaces()
            LandingLog(settings.state.database, stream)
        except UnavailableError as away:
            return away
    hint = f"Committed data is safe. Run the command again to resume. Details: {settings.logs / 'spark.log'}"
    if any(name in _OUTSIDE for name in _java_classes(failure)):  # it may be back by now
        return UnavailableError(f"The catalog, a disk or a server failed: {first_cause(failure)}", hint)
    return LakeproofError(f"The query failed: {first_cause(failure)}", hint)


def _java_classes(failure: Exception) -> Iterator[str]:
    """Names of the classes of a JVM's error, of what caused it, and of all that they inherit from."""
    cause: Any = None
    if isinstance(failure, Py4JJavaError):
        cause = failure.java_exception
    elif isinstance(failure, CapturedException):
        cause = failure._origin
    while cause is not None:
        java_class = cause.getClass()
        while java_class is not None:
            yield java_class.getName()
            java_class = java_class.getSuperclass()
        cause = cause.getCause()
