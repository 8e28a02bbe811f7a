"""Count the rows that a side landed with DuckDB, after its clock has stopped."""

from lakeproof.settings import Settings
from reader.connect import connect


def count(settings: Settings, **tables: str) -> dict[str, int]:
    """Count the rows of tables in the lake's catalog."""
    with connect(settings) as session:
        return {
            name: session.connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for name, table in tables.items()
        }
