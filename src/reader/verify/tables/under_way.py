"""The micro-batches that a proof compares, beside a consumer or a replay that goes on.

A micro-batch is appended to several tables, to the ledger last, and a proof reads the numbers in the ledger first: a
micro-batch in the ledger is in all tables. One that is not is under way, or was interrupted. A proof looks again until
those that it met at the beginning are in the ledger, and leaves out those that began later: where micro-batches follow
each other without a pause, every look meets one.
"""

from collections.abc import Sequence

from lakeproof.tables.names import MICRO_BATCH_ID
from reader.connect import Session
from reader.views import MEMORY

KNOWN = f"{MEMORY}.main.verify_known_batches"
"""Numbers of all micro-batches of the ledger, as ``micro_batch``."""
_BEGUN = f"{MEMORY}.main.verify_begun_batches"
IS_KNOWN = f"(micro_batch_id IS NULL OR micro_batch_id IN (FROM {KNOWN}))"
"""SQL that is true for rows of the ledger that were there when :func:`load_known` read it."""
IS_COMPLETE = f"({MICRO_BATCH_ID} IS NULL OR {MICRO_BATCH_ID} IN (FROM {KNOWN}))"
"""SQL that is true for rows of micro-batches that were in the ledger when :func:`load_known` read it."""
IS_COMPARED = f"({IS_COMPLETE} OR {MICRO_BATCH_ID} IN (FROM {_BEGUN}))"
"""SQL that is true for rows of micro-batches that are in the ledger, or were not when the proof began."""


def load_known(session: Session, ledger: str) -> None:
    """Read the numbers of the micro-batches in the ledger; a look at the tables begins with this."""
    session.fetch(
        f"CREATE OR REPLACE TABLE {KNOWN} AS SELECT DISTINCT micro_batch_id AS micro_batch FROM {ledger} "
        "WHERE micro_batch_id IS NOT NULL"
    )


def load_begun(session: Session, tables: Sequence[str]) -> None:
    """Find the micro-batches in tables that are not in the ledger; call this once, at the beginning of a proof."""
    none = "SELECT NULL::BIGINT AS micro_batch WHERE false"
    numbers = " UNION ALL ".join([none, *(f"SELECT {MICRO_BATCH_ID} AS micro_batch FROM {table}" for table in tables)])
    session.fetch(
        f"CREATE OR REPLACE TABLE {_BEGUN} AS SELECT DISTINCT micro_batch FROM ({numbers}) "
        f"WHERE micro_batch NOT IN (FROM {KNOWN})"
    )
