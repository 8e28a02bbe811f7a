"""Percentiles, and how often a step was slower than another."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The least of `values` that at least `share` of them do not exceed (nearest rank).

    Raises
    ------
    ValueError
        There are no values.
    """
    if not values:
        raise ValueError("There are no values.")
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
