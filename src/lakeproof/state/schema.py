"""Tables of the state database and their migrations.

A released migration never changes; new ones are appended. Each runs once, under a lock, so programs may start at the
same time.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    inspect,
    select,
    text,
)

_metadata = MetaData()

LOGS = Table(
    "landing_logs",
    _metadata,
    Column("stream", String, primary_key=True),
    # The position after which the log begins; earlier files are known from the ledger.
    Column("base_seq", BigInteger, nullable=False),
    Column("base_chain", String, nullable=False),
)
FILES = Table(
    "landed_files",
    _metadata,
    Column("stream", String, primary_key=True),
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("name", String, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("etag", String, nullable=False),
    Column("landed_at", DateTime(timezone=True), nullable=False),
    # Digest of all names up to this one; null for files known from a ledger.
    Column("chain", String),
    UniqueConstraint("stream", "name"),
)
GIVEN_UP = Table(
    "given_up_files",
    _metadata,
    Column("stream", String, primary_key=True),
    Column("name", String, primary_key=True),
)
CONTRACT_TEXTS = Table(
    "contract_texts",
    _metadata,
    Column("digest", String, primary_key=True),
    Column("text", LargeBinary, nullable=False),
)
CURRENT_CONTRACTS = Table(
    "current_contracts",
    _metadata,
    Column("stream", String, primary_key=True),
    Column("digest", String, nullable=False),
)
_for_kafka = MetaData()
BEGUN = Table(
    "begun_micro_batches",
    _for_kafka,
    Column("stream", String, primary_key=True),
    Column("start_position", String, nullable=False),
    Column("end_position", String, nullable=False),
    Column("digest", String, nullable=False),
)
GIVEN_UP_OFFSETS = Table(
    "given_up_offsets",
    _for_kafka,
    Column("stream", String, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("before", BigInteger, nullable=False),
)
_for_publishing = MetaData()
SINK_POSITIONS = Table(
    "sink_positions",
    _for_publishing,
    Column("sink", String, primary_key=True),
    Column("table_name", String, nullable=False),
    # Unique ids: another table or topic with the same name has other ids.
    Column("table_id", String, nullable=False),
    Column("topic_id", String, nullable=False),
    # The topic has all rows of the table up to this marker.
    Column("marker", String, nullable=False),
    Column("recorded_at", Float, nullable=False),
)
QUERY_FAILURES = Table(
    "query_failures",
    _for_publishing,
    Column("query", String, primary_key=True),
    Column("message", String, nullable=False),
    Column("hint", String, nullable=False),
    Column("failed_at", Float, nullable=False),
)
_for_breakers = MetaData()
BREAKER_TRIPS = Table(
    "breaker_trips",
    _for_breakers,
    Column("stream", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("query", String, nullable=False),
    Column("action", String, nullable=False),
    # The content of the micro-batch.
    Column("start_position", String, nullable=False),
    Column("end_position", String, nullable=False),
    Column("checkpoint_id", String, nullable=False),
    Column("found", String, nullable=False),  # JSON: counts, reasons and examples
    Column("tripped_at", Float, nullable=False),
    Column("accepted_at", Float),
    # When the units of a pause were committed, or were no longer the next ones.
    Column("ended_at", Float),
)
_for_proofs = MetaData()
PROOFS = Table(
    "proofs",
    _for_proofs,
    Column("stream", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("kind", String, nullable=False),
    Column("since", Integer),  # number of the proof that this one continues
    Column("began_at", Float, nullable=False),
    Column("proven_at", Float, nullable=False),
    Column("proven_by", String, nullable=False),
    Column("versions", String, nullable=False),  # JSON
    Column("result", String, nullable=False),
    Column("faults", Integer, nullable=False),
    Column("reached", String, nullable=False),  # JSON: the position, and the state of the tables
    Column("digest", String, nullable=False),
)
# Data files of the newest clean proof of each stream.
PROVEN_FILES = Table(
    "proven_files",
    _for_proofs,
    Column("stream", String, primary_key=True),
    Column("table_name", String, primary_key=True),
    Column("location", String, primary_key=True),
    Column("tag", String, nullable=False),  # of the file and the files that delete its rows
    Column("rows", BigInteger, nullable=False),
    Column("hash", BigInteger, nullable=False),
    # Range of the times of the rows, in microseconds since 1970, if the table is compared by time.
    Column("low", BigInteger),
    Column("high", BigInteger),
)
_for_history = MetaData()
# Old files, which are not read again: only hashes of their names are kept.
PASSED_FILES = Table(
    "passed_files",
    _for_history,
    Column("stream", String, primary_key=True),
    Column("name_hash", LargeBinary, primary_key=True),  # BLAKE2b, 128 bits
    sqlite_with_rowid=False,
)
LEASES = Table(
    "leases",
    _metadata,
    Column("stream", String, primary_key=True),
    Column("holder", String, nullable=False),
    # The name; on Linux followed by the id of the boot and of the namespace in which `pid` has a meaning.
    Column("host", String, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
)
_VERSION = Table("state_version", MetaData(), Column("version", Integer, nullable=False))

# Advisory lock: a number that no other program uses in the same database.
_LOCK = 0x6C616B65


class StateTooNewError(Exception):
    """The database was written by a newer version of this program."""


def is_current(connection: Connection) -> bool:
    """Whether a database has the newest version, so that opening it needs no lock."""
    return _VERSION.name in inspect(connection).get_table_names() and _version(connection) == len(_STEPS)


def migrate(connection: Connection) -> None:
    """Migrate a database to the newest version, within a transaction."""
    if connection.dialect.name == "sqlite":
        # Lock before reading: of two transactions that have both read, one could never write.
        connection.execute(text("BEGIN IMMEDIATE"))
    else:
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    _VERSION.create(connection, checkfirst=True)
    version = _version(connection)
    if version is None:
        connection.execute(_VERSION.insert(), {"version": 0})
    done = version or 0
    if done > len(_STEPS):
        raise StateTooNewError
    for tables in _STEPS[done:]:
        tables.create_all(connection, checkfirst=False)
    if done < len(_STEPS):
        connection.execute(_VERSION.update().values(version=len(_STEPS)))


def _version(connection: Connection) -> int | None:
    return connection.scalar(select(_VERSION.c.version))


# Tables to create, by version.
_STEPS = (_metadata, _for_kafka, _for_publishing, _for_breakers, _for_proofs, _for_history)
