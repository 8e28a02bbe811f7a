"""Deal work to tasks."""

import heapq
from collections.abc import Callable, Iterable
from typing import TypeVar

ItemT = TypeVar("ItemT")


def balanced(items: Iterable[ItemT], groups: int, cost: Callable[[ItemT], int]) -> list[list[ItemT]]:
    """Deal items to groups of about the same cost: the most expensive first, each to the lightest group.

    Parameters
    ----------
    items
        The items. Those of the same cost are dealt in this order.
    groups
        How many groups there are at most; none is empty.
    cost
        What an item costs.
    """
    heap: list[tuple[int, int]] = [(0, index) for index in range(groups)]
    dealt: list[list[ItemT]] = [[] for _ in range(groups)]
    for item in sorted(items, key=cost, reverse=True):
        spent, lightest = heap[0]
        dealt[lightest].append(item)
        heapq.heapreplace(heap, (spent + cost(item), lightest))
    return [members for members in dealt if members]
