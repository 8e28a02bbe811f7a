"""What the state database says: which files a position has passed, and whether a query has run."""

import json
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, create_engine, select
from sqlalchemy.exc import SQLAlchemyError

from lakeproof.checkpoint import Checkpoint, bronze_query
from lakeproof.settings import Settings
from lakeproof.state.landing_log import Position
from lakeproof.state.lease import State, state_in
from lakeproof.state.schema import FILES
from lakeproof.tables.names import MARKER

FoundT = TypeVar("FoundT")


@dataclass(frozen=True)
class Passed:
    """What is behind a position and in no table.

    Parameters
    ----------
    names
        Of the files that the landing log knows.
    problems
        What is wrong, in words; nothing where the checkpoint is where the tables are.
    """

    names: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()


def accounted_position(ledger: Mapping[str, str], stream: str) -> Position | None:
    """The position up to which a ledger has everything, from its properties; None where nothing was ever taken."""
    text = ledger.get(MARKER + bronze_query(stream))
    return Position.parse(json.loads(text)["marker"]["end"]) if text else None


def passed_files(
    settings: Settings,
    stream: str,
    checkpoint: Checkpoint[Position] | None,
    accounted: Position | None,
    pending: Set[str],
) -> Passed:
    """Find which files that are in no table will not be read, since a position is behind them.

    Parameters
    ----------
    settings, stream
        Where the landing log is, and whose.
    checkpoint
        What was read of it before the ledger.
    accounted
        The position up to which the ledger says that it has everything.
    pending
        Names of the files that landed and are in no table.
    """
    reached = checkpoint.passed if checkpoint else None
    behind = accounted.seq if accounted else 0
    problems = []
    if reached and reached.seq >= behind and reached != accounted and reached.seq:
        problems.append(
            f"The checkpoint is at position {reached.seq:,} of the landing log, but the tables are at position "
            f"{behind:,}. The files in between will not be read. Run `consumer reset {stream}`, then the consumer."
        )
    end = max(behind, reached.seq if reached else 0)
    names = _names(settings, stream, end) & pending if pending and end else frozenset()
    return Passed(names, tuple(problems))


def _names(settings: Settings, stream: str, end: int) -> frozenset[str]:
    """Names of the files up to a position of the landing log."""
    before = select(FILES.c.name).where(FILES.c.stream == stream, FILES.c.seq <= end)
    # Where the database cannot be read, the problem is reported in any case.
    return _read(settings, lambda connection: frozenset(connection.scalars(before)), frozenset())


def query_state(settings: Settings, lease: str) -> State:
    """Whether the query that holds a lease has run; never, if the database cannot be read."""
    return _read(settings, lambda connection: state_in(connection, lease), State.NEVER)


def _read(settings: Settings, read: Callable[[Connection], FoundT], otherwise: FoundT) -> FoundT:
    """Read the state database as it is: unlike the consumer, without bringing it to the newest version."""
    engine = create_engine(settings.state.database.replace("postgresql://", "postgresql+psycopg://", 1))
    try:
        with engine.connect() as connection:
            return read(connection)
    except SQLAlchemyError:
        return otherwise
    finally:
        engine.dispose()
