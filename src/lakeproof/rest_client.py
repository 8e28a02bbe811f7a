"""Timeouts of PyIceberg's requests to a REST catalog: without them, a server that does not answer blocks forever."""

from typing import Any

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
"""Longer than servers take for a commit. After that, it is unknown whether they made it, and tables are looked up."""


def limit_requests() -> None:
    """Give PyIceberg's REST clients sessions with timeouts, which PyIceberg has no properties for."""
    import pyiceberg.catalog.rest as rest
    from requests import Response, Session

    class LimitedSession(Session):
        """A session of requests with timeouts, also for tokens."""

        def request(self, *arguments: Any, **options: Any) -> Response:
            options.setdefault("timeout", (CONNECT_SECONDS, ANSWER_SECONDS))
            return super().request(*arguments, **options)

    vars(rest)["Session"] = LimitedSession
