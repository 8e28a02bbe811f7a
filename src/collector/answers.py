"""Answers to clients: receipts, or a problem as defined in RFC 9457."""

import math
from http import HTTPStatus

import msgspec


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Place of an event in Kafka."""

    topic: str
    partition: int
    offset: int


class Outcome(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A receipt, or the reason why it is unknown whether Kafka has the event."""

    receipt: Receipt | None = None
    error: str | None = None


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """All events of a post are in Kafka: one receipt per event, in the order of the post."""

    receipts: list[Receipt]


class Fault(msgspec.Struct, frozen=True, gc=False):
    """What is wrong with a post."""

    index: int | None  # 0-based position of the event; None if the fault is not inside an event
    path: str  # JSONPath in the event; without an index, in the post
    detail: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reason why a post was not accepted."""

    status: int
    title: str
    detail: str  # what is wrong and the next step
    faults: list[Fault] = []
    events: list[Outcome] = []  # outcome of each event, in the order of the post, after a partial failure


class Refusal(Exception):  # noqa: N818 - an answer, not an error of the program
    """End the handling of a post, with a problem as the answer."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        faults: list[Fault] | None = None,
        events: list[Outcome] | None = None,
        retry_after: float | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.problem = Problem(status, status.phrase, detail, faults or [], events or [])
        self.headers: list[tuple[bytes, bytes]] = []
        if retry_after is not None:
            self.headers.append((b"retry-after", b"%d" % max(1, math.ceil(retry_after))))
        if status is HTTPStatus.UNAUTHORIZED:
            self.headers.append((b"www-authenticate", b"Bearer"))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.headers.append((b"allow", b"POST"))
        if close:
            self.headers.append((b"connection", b"close"))


def refusal(status: HTTPStatus, detail: str) -> Refusal:
    """Return the refusal of a post with a fault outside of its events."""
    return Refusal(status, detail[0].upper() + detail[1:] + ".", faults=[Fault(None, "$", detail)])
