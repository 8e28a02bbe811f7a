"""Root of the project, and an environment without the caller's settings."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FOREIGN = ("LAKE_", "AWS_", "CHAOS_", "SPARK_", "PYSPARK_", "MINIO_")


def clean_environment() -> dict[str, str]:
    """Return the caller's environment without variables that would affect our programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    # Keys must come neither from the instance metadata service nor from a profile of the user.
    return kept | {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
