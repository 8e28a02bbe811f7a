"""Views of the rows since the last proof, which checks read in place of the tables of a stream.

They contain the rows of new micro-batches and all older rows of the same sources: a replay appends to bronze what
landed long ago, and a source that was consumed twice must be found. A replay that begins while the views are read adds
no older rows: else one query would have those of a source, and another one would not.
"""

from dataclasses import replace

from lakeproof.reasons import NOT_READ
from lakeproof.tables.names import (
    LETTER_REASONS,
    MICRO_BATCH_ID,
    OUTCOME,
    REPLAY,
    SOURCE,
    ReplayOutcome,
    StreamTables,
)
from reader.connect import Session
from reader.verify.tables.reach import Reach
from reader.verify.tables.removals import qualified
from reader.verify.tables.under_way import IS_COMPARED, IS_KNOWN, load_begun, load_known
from reader.views import MEMORY

_AGAIN = f"{MEMORY}.main.verify_old_sources_again"
_SINCE = f"{MEMORY}.main.verify_sources_since"
_VIEW = f"{MEMORY}.main.verify_new_"
_PARTITION = r"regexp_replace({}, '/[0-9]+$', '')"


def since_views(
    session: Session, names: StreamTables, proven: Reach, *, has_attempts: bool, of_topic: bool
) -> StreamTables:
    """Create the views and return the table names with the views in their place; the ledger is read in full."""
    names = qualified(names)
    beyond = proven.is_beyond(MICRO_BATCH_ID)
    tables = [names.bronze, names.dead_letters, *[names.attempts] * has_attempts]
    sources = [f"SELECT {SOURCE} AS source FROM {table} WHERE {beyond}" for table in tables]
    booked = proven.is_beyond("micro_batch_id")
    if of_topic:  # a source is a message, and the ledger has ranges of messages
        known = _within(names.ledger, f"{_landed(session, names)} NOT {booked}")
    else:
        sources.append(f"SELECT source FROM {names.ledger} WHERE {booked}")
        known = f"source IN (SELECT source FROM {names.ledger} WHERE NOT {booked})"
    fetch = session.fetch
    fetch(
        f"CREATE OR REPLACE TABLE {_AGAIN} AS WITH _new AS ({' UNION ALL '.join(sources)}) "
        f"SELECT DISTINCT source FROM _new WHERE {known}"
    )
    again = f"SELECT source FROM {_AGAIN}"
    if has_attempts:
        # Data that was landed again in place of an unreadable file differs from the ledger.
        codes = "|".join(sorted(NOT_READ))
        fetch(
            f"INSERT INTO {_AGAIN} SELECT DISTINCT {SOURCE} FROM {names.attempts} "
            f"WHERE {OUTCOME} = '{ReplayOutcome.CLOSED}' AND regexp_matches({LETTER_REASONS}, '\\b({codes})\\b')"
        )
        again += f" UNION ALL SELECT {SOURCE} FROM {names.attempts} WHERE {beyond} AND {IS_COMPARED}"
    load_known(session, names.ledger)
    load_begun(session, [])  # until a check looks
    views = {}
    for name, table in (
        ("bronze", names.bronze),
        ("dead_letters", names.dead_letters),
        *[("attempts", names.attempts)] * has_attempts,
    ):
        views[name] = f"{_VIEW}{name}"
        fetch(
            f"CREATE OR REPLACE VIEW {views[name]} AS SELECT * FROM {table} WHERE {beyond} "
            f"UNION ALL SELECT * FROM {table} WHERE NOT {beyond} AND {SOURCE} IN ({again})"
        )
    return replace(names, **views)


def sources_since(session: Session, tables: StreamTables, proven: Reach) -> str:
    """Create a table of the landed files with rows since the proof; return its name. `tables` are the views."""
    session.fetch(
        f"CREATE OR REPLACE TABLE {_SINCE} AS SELECT source FROM {tables.ledger} "
        f"WHERE {proven.is_beyond('micro_batch_id')} AND {IS_KNOWN} UNION SELECT source FROM {_AGAIN} "
        f"UNION SELECT {SOURCE} FROM {tables.dead_letters} WHERE {IS_COMPARED} "
        f"UNION SELECT {SOURCE} FROM {tables.bronze} WHERE {IS_COMPARED}"
    )
    return _SINCE


def messages_again(session: Session) -> list[tuple[int, int]]:
    """Return partition and offset of old messages with new rows."""
    rows = session.fetch(
        f"SELECT DISTINCT split_part(source, '/', -2)::INTEGER, split_part(source, '/', -1)::BIGINT FROM {_AGAIN} "
        "WHERE regexp_matches(source, ?) ORDER BY ALL",
        [r"^.+/\d+/\d{19}$"],
    )
    return [(partition, offset) for partition, offset in rows]


def _landed(session: Session, tables: StreamTables) -> str:
    """Return SQL that selects ledger rows of landed sources, not of replays, to precede another condition."""
    return f"{REPLAY} IS NULL AND" if REPLAY in session.columns(tables.ledger) else ""


def _within(ledger: str, condition: str) -> str:
    """Return SQL that is true if the message `source` is in a range of the ledger."""
    partition, booked = _PARTITION.format("source"), _PARTITION.format("booked.source")
    end = f"{booked} || '/' || lpad(booked.etag, 19, '0')"
    return (
        f"source IN (SELECT message.source FROM (SELECT source, {partition} AS part FROM _new) AS message "
        f"ASOF JOIN (SELECT source, {booked} AS part, {end} AS behind FROM {ledger} AS booked "
        f"WHERE {condition}) AS old ON old.part = message.part AND message.source >= old.source "
        "WHERE message.source < old.behind)"
    )
