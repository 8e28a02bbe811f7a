"""Memory limit of all unanswered posts."""

from http import HTTPStatus

from collector.answers import Refusal, refusal

_RETRY_SECONDS = 1.0


class Budget:
    """Number of bytes shared by all posts. Used by one thread."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def share(self) -> "Share":
        """Return the share of one post, which is released at the end of the context."""
        return Share(self)


class Share:
    """The share of one post."""

    __slots__ = ("_budget", "_taken")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._taken = 0

    def take(self, count: int) -> None:
        """Take bytes, or raise Refusal: 429, or 413 if the post would not even fit into an empty queue."""
        budget = self._budget
        if self._taken + count > budget.limit:
            detail = f"expected a post that needs at most {budget.limit} bytes of memory; send smaller posts"
            raise refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        if budget.used + count > budget.limit:
            raise Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                "The queue is full. Try again later.",
                retry_after=_RETRY_SECONDS,
            )
        budget.used += count
        self._taken += count

    def __enter__(self) -> "Share":
        return self

    def __exit__(self, *_error: object) -> None:
        self._budget.used -= self._taken
        self._taken = 0
