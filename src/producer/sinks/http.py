"""Post batches to the collector until they are accepted."""

import json
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from http.client import HTTPException
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from lakeproof.errors import UnavailableError, UsageError
from lakeproof.settings import Settings
from producer.sinks import BatchRefused, Sink

if TYPE_CHECKING:
    from pathlib import Path

    from producer.batches import Batch

_PATIENCE_SECONDS = 120.0
_LAST_SECONDS = 5.0  # of retries after a request to end: soon enough for the report, before a supervisor kills
_PAUSE_SECONDS = 1.0
_TIMEOUT_SECONDS = 60.0
_CHECK_TARGET = "Check --target: it is the address that ends with /collect."
_AGAIN = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
    # Of a proxy whose collector is away:
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.GATEWAY_TIMEOUT,
)


def connect(url: str, settings: Settings, receipts: "Path | None" = None) -> Sink:
    """Create the sink; it contacts the collector at the first write, and appends the responses to `receipts`."""
    try:
        file = receipts.open("ab") if receipts else None
    except OSError as error:
        raise UsageError(
            f"Cannot write receipts to {receipts}: {error.strerror}.", "Use another --receipts."
        ) from error
    return _HttpSink(url, file, settings.collector.producer_key)


class _HttpSink(Sink):
    def __init__(self, url: str, receipts: IO[bytes] | None, key: SecretStr | None) -> None:
        self._url = url
        self._key = key
        self._receipts = receipts
        self._posts = 0
        self._repeated = 0
        self._refused = 0

    def write(self, batch: "Batch") -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, batch.data, headers, method="POST")  # noqa: S310 - http or https
        if self._key:
            request.add_unredirected_header("Authorization", f"Bearer {self._key.get_secret_value()}")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            pause = _PAUSE_SECONDS
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
                    status, body = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in _AGAIN:
                        raise self._not_accepted(batch, error) from None
                    pause, why = _retry_after(error), _detail(error)
            except (OSError, HTTPException) as error:
                why = f"{getattr(error, 'reason', None) or error or type(error).__name__}."
            else:
                if status != HTTPStatus.ACCEPTED:
                    raise UsageError(f"{self._where} answers {status}, and is no collector.", _CHECK_TARGET)
                self._accepted(body)
                return
            if time.monotonic() + pause > min(deadline, self.stop.requested_at + _LAST_SECONDS):
                raise UnavailableError(
                    f"The collector at {self._where} does not accept events: {why}",
                    "Start it with `collector run`, or check --target.",
                )
            self._repeated += 1
            if self.stop.requested:
                time.sleep(pause)
            else:
                self.stop.wait(pause)

    def landed(self) -> dict[str, Any]:
        """Return the number of accepted, repeated (perhaps duplicated) and refused posts."""
        return {"http": {"posts": self._posts, "repeated": self._repeated, "refused": self._refused}}

    @property
    def _where(self) -> str:
        """The address without its API key."""
        return urlsplit(self._url)._replace(query="").geturl()

    def _accepted(self, body: bytes) -> None:
        self._posts += 1
        if self._receipts:
            try:
                self._receipts.write(body.rstrip() + b"\n")
                self._receipts.flush()
            except OSError as error:
                raise UsageError(f"Cannot write receipts: {error.strerror}.", "Use another --receipts.") from error

    def _not_accepted(self, batch: "Batch", error: urllib.error.HTTPError) -> Exception:
        if batch.corrupt and error.code == HTTPStatus.BAD_REQUEST:
            self._refused += 1
            return BatchRefused()
        hints: dict[int, str] = {
            HTTPStatus.UNAUTHORIZED: "Set LAKE_PRODUCER_KEY to an API key of the collector.",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Use a smaller --batch-size, or raise LAKE_COLLECTOR_MAX_EVENTS.",
        }
        return UsageError(
            f"The collector at {self._where} refused a post with status {error.code}: {_detail(error)}",
            hints.get(error.code, _CHECK_TARGET),
        )


def _retry_after(error: urllib.error.HTTPError) -> float:
    try:
        seconds = float(error.headers.get("Retry-After", ""))
    except ValueError:
        return _PAUSE_SECONDS
    return min(seconds, _PATIENCE_SECONDS) if seconds >= 0 else _PAUSE_SECONDS  # negative, or not a number


def _detail(error: urllib.error.HTTPError) -> str:
    """Return the detail of the response, or the name of the status."""
    try:
        return str(json.loads(error.read())["detail"])
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return f"{error.reason}."
