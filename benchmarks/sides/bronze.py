"""Fill bronze before the clock starts, for the sides of the medallion benchmark."""

import subprocess
import sys

HORIZON_DAYS = 7


def fill_bronze() -> None:
    """Run the consumer over all landed files, up to bronze."""
    command = [sys.executable, "-m", "consumer", "run", "events", "--to", "bronze", "--available-now"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
