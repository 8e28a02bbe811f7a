"""Seeded random generators."""

from random import Random


def seeded(seed: int, purpose: str) -> Random:
    """Make a separate generator per purpose, so that draws are independent."""
    return Random(f"{seed}/{purpose}")  # noqa: S311 - made-up data, no secrets
