"""What the sides of the medallion share: a bronze that is filled before the clock starts, and counts afterwards."""

import subprocess
import sys

from lakeproof.settings import Settings
from reader.connect import connect

HORIZON_DAYS = 7


def fill_bronze() -> None:
    """Run the consumer over all that has landed, to bronze."""
    command = [sys.executable, "-m", "consumer", "run", "events", "--to", "bronze", "--available-now"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def count(settings: Settings, **tables: str) -> dict[str, int]:
    """Count the rows of tables."""
    with connect(settings) as session:
        return {
            name: session.connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for name, table in tables.items()
        }
