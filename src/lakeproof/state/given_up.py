"""Lost offsets that were given up with `consumer give-up`: the stream may resume after them."""

from sqlalchemy import Engine, select

from lakeproof.state.database import open_database, transaction
from lakeproof.state.schema import GIVEN_UP_OFFSETS


def give_up_before(database: str, stream: str, partition: int, offset: int) -> None:
    """Give up lost offsets of a partition before `offset`."""
    with transaction(open_database(database)) as connection:
        table = GIVEN_UP_OFFSETS
        connection.execute(table.delete().where(table.c.stream == stream, table.c.partition == partition))
        connection.execute(table.insert(), {"stream": stream, "partition": partition, "before": offset})


def forget_given_up(database: str, stream: str) -> None:
    """Forget what was given up: the stream begins with another topic, whose offsets are not those."""
    with transaction(open_database(database)) as connection:
        connection.execute(GIVEN_UP_OFFSETS.delete().where(GIVEN_UP_OFFSETS.c.stream == stream))


def given_up_before(database: str, stream: str, partition: int) -> int:
    """Return the offset before which lost offsets were given up; 0 for none."""
    return given_up_in(open_database(database), stream, partition)


def given_up_in(engine: Engine, stream: str, partition: int) -> int:
    """Return the same for an open database."""
    table = GIVEN_UP_OFFSETS
    with transaction(engine) as connection:
        query = select(table.c.before).where(table.c.stream == stream, table.c.partition == partition)
        return connection.scalar(query) or 0
