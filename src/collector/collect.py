"""``POST /collect`` as a raw ASGI application: FastAPI's routing would double the time of a request."""

import re
import secrets
import time
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from collector.answers import Accepted, Outcome, Receipt, Refusal, refusal
from collector.body import Disconnected, read_body, unpack
from collector.budget import Budget, Share
from collector.events import Events, read_events
from collector.faults import Bounds
from collector.keys import Client, Keys
from collector.metrics import Metrics
from collector.sender import Headers, Sender
from lakeproof.settings import CollectorSettings

# Header names in HTTP and in messages.
CORRELATION = "x-correlation-id"
IDEMPOTENCY_KEY = "idempotency-key"
IDEMPOTENCY_INDEX = "idempotency-index"
CLIENT = "client"

_DISCONNECTED = 499  # the status that proxies log for a client that disconnected
_EVENT_OVERHEAD_BYTES = 600  # memory overhead per event, here and in librdkafka
_CORRELATION_ID = re.compile(rb"[\w.:-]{1,128}", re.ASCII)
_IDEMPOTENCY_KEY = re.compile(rb"[\x20-\x7e]{1,255}")
_JSON = re.compile(r"application/json\s*(;\s*charset=\"?utf-8\"?\s*)?", re.IGNORECASE)
_TEXT = re.compile(r"text/plain\s*(;\s*charset=\"?utf-8\"?\s*)?", re.IGNORECASE)
_RETRY_SECONDS = 2.0
_MAX_DEPTH = 64  # levels of nesting of an event
_ENCODER = msgspec.json.Encoder()


class _Record:
    """Log entry of a post."""

    __slots__ = ("bytes", "client", "correlation_id", "events", "failed", "status", "unpacked", "why")

    def __init__(self, correlation_id: str) -> None:
        self.correlation_id = correlation_id
        self.status: int = HTTPStatus.INTERNAL_SERVER_ERROR
        self.client: str | None = None
        self.bytes = self.unpacked = self.events = self.failed = 0
        self.why: str | None = None


class Collect:
    """Answers posts when Kafka has their events."""

    def __init__(
        self, settings: CollectorSettings, sender: Sender, keys: Keys | None, budget: Budget, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._sender = sender
        self._keys = keys
        self._budget = budget
        self._metrics = metrics
        self._bounds = Bounds(settings.max_events, settings.max_event_bytes, _MAX_DEPTH)
        self._origins = frozenset(settings.origins.split(",")) if settings.origins else frozenset[str]()
        self._indexes = [b"%d" % index for index in range(settings.max_events)]
        self._log = structlog.get_logger()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        began = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        record = _Record(_correlation_id(headers))
        extra: list[tuple[bytes, bytes]] = []
        kind = b"application/json"
        try:
            with self._budget.share() as share:
                receipts = await self._accept(scope, headers, receive, share, record)
                record.status = HTTPStatus.ACCEPTED
                answer = _ENCODER.encode(Accepted(receipts))
        except Refusal as refused:
            record.status, record.why = refused.status, refused.problem.detail
            kind, extra, answer = b"application/problem+json", refused.headers, _ENCODER.encode(refused.problem)
        except Disconnected:
            record.status = _DISCONNECTED
        finally:
            self._tell(record, time.perf_counter() - began)
        if record.status != _DISCONNECTED:
            start = [
                (b"content-type", kind),
                (b"content-length", b"%d" % len(answer)),
                (CORRELATION.encode(), record.correlation_id.encode()),
                *extra,
            ]
            await send({"type": "http.response.start", "status": int(record.status), "headers": start})
            await send({"type": "http.response.body", "body": answer})

    async def _accept(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, share: Share, record: _Record
    ) -> list[Receipt]:
        settings = self._settings
        if scope["method"] != "POST":
            raise refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"expected POST, got {scope['method']}")
        client = self._client(scope, headers, record)
        self._check_content_type(headers)
        idempotency_key = _idempotency_key(headers)
        if why := self._sender.why_not_ready:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}. Try again later.", retry_after=_RETRY_SECONDS)
        if int(headers.get(b"content-length", b"0")) > settings.max_body_bytes:
            detail = f"expected a body of at most {settings.max_body_bytes} bytes; send smaller posts"
            raise refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        body = await read_body(receive, settings.max_body_bytes, settings.body_seconds, share)
        record.bytes = len(body)
        encoding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
        body = unpack(body, encoding, settings.max_unpacked_bytes, share)
        record.unpacked = len(body)
        events = read_events(body, self._bounds)
        record.events = len(events.values)
        share.take(len(body) + record.events * _EVENT_OVERHEAD_BYTES)
        if client:
            client.allowance.take(record.events)
        del body
        return await self._deliver(events, self._message_headers(record.events, client, idempotency_key), record)

    async def _deliver(self, events: Events, headers: list[Headers | None], record: _Record) -> list[Receipt]:
        outcomes = await self._sender.send(events, headers)
        receipts = [outcome for outcome in outcomes if not isinstance(outcome, str)]
        record.failed = len(outcomes) - len(receipts)
        self._metrics.acknowledged.inc(len(receipts))
        if record.failed:
            self._metrics.failed.inc(record.failed)
            detail = (
                f"Kafka did not acknowledge {record.failed} of {len(outcomes)} events in time. "
                "Send the same post again, with the same Idempotency-Key."
            )
            found = [Outcome(error=each) if isinstance(each, str) else Outcome(each) for each in outcomes]
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail, events=found, retry_after=_RETRY_SECONDS)
        return receipts

    def _client(self, scope: Scope, headers: dict[bytes, bytes], record: _Record) -> Client | None:
        if self._keys is None:
            return None
        scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            # A beacon cannot have custom headers.
            key = parse_qs(scope["query_string"].decode("latin-1")).get("key", [""])[0]
        client = self._keys.client(key.strip())
        record.client = client.name
        return client

    def _check_content_type(self, headers: dict[bytes, bytes]) -> None:
        kind = headers.get(b"content-type", b"").decode("latin-1").strip()
        if _JSON.fullmatch(kind):
            return
        if _TEXT.fullmatch(kind) and self._origins:
            # Beacons have this type, since browsers send it without a preflight: accept it only from allowed origins.
            origin = headers.get(b"origin", b"").decode("latin-1")
            if origin in self._origins or "*" in self._origins:
                return
        raise refusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected the Content-Type application/json, got {kind[:100]!r}"
        )

    def _message_headers(
        self, count: int, client: Client | None, idempotency_key: bytes | None
    ) -> list[Headers | None]:
        common: Headers = [(CLIENT, client.name.encode())] if client else []
        if idempotency_key is None:
            return [common or None] * count
        common = [*common, (IDEMPOTENCY_KEY, idempotency_key)]
        return [[*common, (IDEMPOTENCY_INDEX, index)] for index in self._indexes[:count]]

    def _tell(self, record: _Record, seconds: float) -> None:
        self._metrics.answered(record.status, seconds)
        with suppress(OSError):  # a log that cannot be written must not affect the events
            self._log.info(
                "post",
                status=int(record.status),
                events=record.events,
                failed=record.failed,
                bytes=record.bytes,
                unpacked=record.unpacked,
                seconds=round(seconds, 6),
                correlation_id=record.correlation_id,
                client=record.client,
                why=record.why,
            )


def _correlation_id(headers: dict[bytes, bytes]) -> str:
    given = headers.get(CORRELATION.encode(), b"")
    return given.decode() if _CORRELATION_ID.fullmatch(given) else secrets.token_hex(8)


def _idempotency_key(headers: dict[bytes, bytes]) -> bytes | None:
    key = headers.get(IDEMPOTENCY_KEY.encode())
    if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
        raise refusal(HTTPStatus.BAD_REQUEST, "expected an Idempotency-Key of 1 to 255 printable ASCII characters")
    return key
