"""What the sides of the medallion share: a bronze that is filled before the clock starts."""

import subprocess
import sys

HORIZON_DAYS = 7


def fill_bronze() -> None:
    """Run the consumer over all that has landed, to bronze."""
    command = [sys.executable, "-m", "consumer", "run", "events", "--to", "bronze", "--available-now"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
