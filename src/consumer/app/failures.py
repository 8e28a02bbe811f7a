"""What to say when a query fails."""

from consumer.iceberg.jvm import failed_outside, first_cause
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandingLog
from lakeproof.storage.disk import full_disk, local_places


def explained(failure: Exception, settings: Settings, stream: str | None = None) -> LakeproofError:
    """Say why a query failed: what a micro-batch raised, what it depends on and is away, or what Spark says."""
    if isinstance(failure, LakeproofError):
        return failure
    if full := full_disk(failure, *local_places(settings)):
        return full
    if stream:  # without one, it depends on no lake
        try:  # what the query depends on may be away: that is clearer than what two languages say of it
            open_catalog(settings).list_namespaces()
            LandingLog(settings.state.database, stream)
        except UnavailableError as away:
            return away
    hint = f"Committed data is safe. Run the command again to resume. Details: {settings.logs / 'spark.log'}"
    if failed_outside(failure):  # it may be back by now
        return UnavailableError(f"The catalog, a disk or a server failed: {first_cause(failure)}", hint)
    return LakeproofError(f"The query failed: {first_cause(failure)}", hint)
