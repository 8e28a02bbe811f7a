"""Percentiles of measurements."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that at least `share` of them do not exceed (nearest rank).

    Raises
    ------
    ValueError
        `values` is empty.
    """
    if not values:
        raise ValueError("There are no values.")
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
