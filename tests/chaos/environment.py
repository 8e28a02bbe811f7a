"""Where the project is, and an environment that the caller's settings do not reach."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FOREIGN = ("LAKE_", "AWS_", "CHAOS_", "SPARK_", "PYSPARK_", "MINIO_")


def clean_environment() -> dict[str, str]:
    """The caller's environment without what would change our programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    # Neither the instance metadata service nor a profile of the user's may answer for a key.
    return kept | {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
