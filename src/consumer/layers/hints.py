"""What queries say and ask of a silver table, whether they fill it or follow it."""

from consumer.iceberg.append import OpenTable
from consumer.iceberg.marker import Committed, MarkerLostError


def rebuild_silver_hint(stream: str) -> str:
    """What to do where the rows of silver cannot be trusted."""
    return f"Run `consumer rebuild silver {stream}`, to fill silver again from bronze."


def decided_by_silver(silver: OpenTable, stream: str) -> Committed | None:
    """Silver's newest marker.

    Raises
    ------
    MarkerLostError
        The table was rolled back or replaced. Whichever query finds that first, the remedy is the same.
    """
    try:
        return silver.newest()
    except MarkerLostError as error:
        raise MarkerLostError(error.message, rebuild_silver_hint(stream)) from error
