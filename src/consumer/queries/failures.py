"""Reasons for the failure of a query."""

from consumer.iceberg.jvm import failed_outside, first_cause
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandingLog
from lakeproof.storage.disk import full_disk, local_places


def explained(failure: Exception, settings: Settings, stream: str | None = None) -> LakeproofError:
    """Return why a query failed: the error of a micro-batch, an unavailable dependency, or Spark's error."""
    if isinstance(failure, LakeproofError):
        return failure
    if full := full_disk(failure, *local_places(settings)):
        return full
    if stream:  # without a stream, the query depends on no lake
        try:  # an unavailable dependency is a clearer reason than the errors of Python and Java
            with catalog_errors():  # the client of a REST catalog may be open already
                open_catalog(settings).list_namespaces()
            LandingLog(settings.state.database, stream)
        except UnavailableError as away:
            return away
    hint = f"Committed data is safe. Run the command again to resume. Details: {settings.logs / 'spark.log'}"
    if failed_outside(failure):  # the dependency may be available again
        return UnavailableError(f"The catalog, a disk or a server failed: {first_cause(failure)}", hint)
    return LakeproofError(f"The query failed: {first_cause(failure)}", hint)
