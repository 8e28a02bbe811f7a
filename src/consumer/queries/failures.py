"""What to say when a query fails."""

from consumer.session import first_cause
from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.settings import Settings
from lakeproof.state.landing_log import LandingLog


def explained(failure: Exception, settings: Settings, stream: str) -> LakeproofError:
    """Say why a query failed: what a micro-batch raised, what it depends on and is away, or what Spark says."""
    if isinstance(failure, LakeproofError):
        return failure
    try:  # what the query depends on may be away: that is clearer than what two languages say of it
        open_catalog(settings).list_namespaces()
        LandingLog(settings.state.database, stream)
    except UnavailableError as away:
        return away
    return LakeproofError(
        f"The query failed: {first_cause(failure)}",
        f"Committed data is safe. Run the command again to resume. Details: {settings.logs / 'spark.log'}",
    )
