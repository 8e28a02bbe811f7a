"""Count with DuckDB what a side landed, once its clock has stopped."""

from lakeproof.settings import Settings
from reader.connect import connect


def lake_counts(settings: Settings, bronze: str, dead_letters: str) -> dict[str, int]:
    """Count the rows of two tables of the lake's catalog."""
    tables = {"bronze": bronze, "dead_letters": dead_letters}
    with connect(settings) as session:
        return {
            name: session.connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for name, table in tables.items()
        }
