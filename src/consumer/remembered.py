"""What was computed of files that never change, kept in memory within bounds, so that they are read once."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

ValueT = TypeVar("ValueT")


class Remembered(Generic[ValueT]):
    """Values by their keys; the one that was longest unused is forgotten first. For several threads.

    Parameters
    ----------
    most
        How much is kept, at most.
    size_of
        The size of a value.
    """

    def __init__(self, most: int, size_of: Callable[[ValueT], int]) -> None:
        self._most = most
        self._size_of = size_of
        self._values: LRUCache[Hashable, ValueT] = LRUCache(most, getsizeof=size_of)
        self._lock = Lock()

    def get(self, key: Hashable) -> ValueT | None:
        """Return the value of a key, or None."""
        with self._lock:
            found: ValueT | None = self._values.get(key)
            return found

    def keep(self, key: Hashable, value: ValueT) -> None:
        """Keep a value, unless it is larger than all that is kept."""
        if self._size_of(value) <= self._most:
            with self._lock:
                self._values[key] = value

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._values
