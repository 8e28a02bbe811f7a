"""The events of a post: raw bytes and ids."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

import msgspec

from collector.answers import Fault, Refusal, refusal
from collector.faults import Bounds, Found, find_excess, find_faults


class _Object(msgspec.Struct, gc=False):
    """Any JSON object; its fields are checked by the contract."""


class _Event(msgspec.Struct, gc=False):
    """Required parts of an event; other fields are checked by the contract."""

    id: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
    type: str
    event: _Object


_EVENTS = msgspec.json.Decoder(list[_Event])
_VALUES = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a post."""

    values: list[bytes]  # byte for byte as sent
    keys: list[bytes]  # ids in digits: the keys of the messages


def read_events(body: bytes, bounds: Bounds) -> Events:
    """Split a post into events; raise Refusal (400, 413 or 422) if it is invalid."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            what = f"not UTF-8: {error.reason} at byte {error.start}"
            raise refusal(HTTPStatus.BAD_REQUEST, what) from None
    try:
        events = _EVENTS.decode(body)
        if not 0 < len(events) <= bounds.events:
            raise _wrong_number(len(events), bounds)
        values = [bytes(value) for value in _VALUES.decode(body)]
    except (msgspec.DecodeError, RecursionError):
        # In rare cases, the decoder rejects JSON in which find_faults finds no fault.
        faults = find_faults(body.decode(), bounds)
        raise (_refused(faults) if faults else refusal(HTTPStatus.BAD_REQUEST, "not valid JSON")) from None
    if max(map(len, values)) > bounds.bytes or _may_be_too_deep(body, len(events), bounds):
        faults = find_excess(values, bounds)
        if faults:
            raise _refused(faults)
    return Events(values, [b"%d" % event.id for event in events])


def _may_be_too_deep(body: bytes, count: int, bounds: Bounds) -> bool:
    """Return whether an event may be nested too deeply, given that each other event has at least two brackets."""
    return body.count(b"{") + body.count(b"[") - 1 - 2 * (count - 1) > bounds.depth


def _wrong_number(count: int, bounds: Bounds) -> Refusal:
    if count == 0:
        return refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "expected at least 1 event, got an empty array")
    detail = f"expected at most {bounds.events} events, got {count}; send smaller posts"
    return refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def _refused(faults: list[Found]) -> Refusal:
    first = min(faults, key=lambda fault: _ORDER.index(fault.status))
    where = "the post" if first.index is None else f"event {first.index}"
    return Refusal(
        first.status,
        f"In {where}, {first.path}: {first.detail}.",
        faults=[Fault(fault.index, fault.path, fault.detail) for fault in faults],
    )


_ORDER = [HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY]
"""Order of precedence of statuses for a post with several faults."""
