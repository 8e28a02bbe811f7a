"""Random generators that a seed fixes."""

from random import Random


def seeded(seed: int, purpose: str) -> Random:
    """Make a generator of its own for a purpose, so that the draws for one do not move those for another."""
    return Random(f"{seed}/{purpose}")  # noqa: S311 - made-up data, no secrets
