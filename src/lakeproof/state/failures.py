"""Errors of failed queries until they run again, for `consumer status`.

The key is the lease, since two pipelines of one mode have the same name but different checkpoints.
"""

import time

from sqlalchemy import delete, insert, select

from lakeproof.errors import LakeproofError
from lakeproof.state.database import open_database, transaction
from lakeproof.state.schema import QUERY_FAILURES


def record_failure(database: str, lease: str, error: LakeproofError) -> None:
    """Record the error of a failed query."""
    values = {"query": lease, "message": error.message, "hint": error.hint, "failed_at": time.time()}
    with transaction(open_database(database)) as connection:
        connection.execute(delete(QUERY_FAILURES).where(QUERY_FAILURES.c.query == lease))
        connection.execute(insert(QUERY_FAILURES), values)


def clear_failures(database: str, leases: list[str]) -> None:
    """Remove the recorded failures of queries that run again."""
    with transaction(open_database(database)) as connection:
        connection.execute(delete(QUERY_FAILURES).where(QUERY_FAILURES.c.query.in_(leases)))


def failures(database: str) -> dict[str, str]:
    """Return recorded failures by lease."""
    with transaction(open_database(database)) as connection:
        found = connection.execute(select(QUERY_FAILURES.c.query, QUERY_FAILURES.c.message))
        return {row.query: row.message for row in found}
