"""API keys: a file of hashes, which is read again when it changes, and rate limits of clients.

A line is ``CLIENT SHA256`` or ``CLIENT SHA256 EVENTS_PER_SECOND``; ``#`` begins a comment. A client may have several
keys, so that one can be replaced while the other still works. Keys are random tokens of 256 bits, so a plain hash is
enough.
"""

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import structlog

from collector.answers import Refusal
from lakeproof.errors import LakeproofError, UsageError

_LINE = re.compile(r"(?P<client>[\w.-]{1,64})\s+(?P<digest>[0-9a-f]{64})(\s+(?P<rate>\d+(\.\d+)?))?")
_CLIENT = re.compile(r"[\w.-]{1,64}")
_LOOK_SECONDS = 1.0
_BURST_SECONDS = 2.0  # seconds of allowance that an idle client saves up


@dataclass(frozen=True)
class NewKey:
    """A new key: `key` is shown once, `line` is for the file."""

    key: str
    line: str


def new_key(client: str) -> NewKey:
    """Make a key for a client."""
    if not _CLIENT.fullmatch(client):
        raise UsageError(
            f"{client!r} is not the name of a client.",
            "Write 1 to 64 letters, digits, dots, underscores or hyphens.",
        )
    key = secrets.token_urlsafe(32)
    return NewKey(key, f"{client} {_digest(key)}")


class Allowance:
    """Token bucket that limits the events of a client."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.rate = rate
        self._level = (rate or 0) * _BURST_SECONDS
        self._at = clock()

    def take(self, events: int) -> None:
        """Take events, or raise Refusal (429). A post larger than the bucket needs a full one."""
        if self.rate is None:
            return
        now = self._clock()
        full = self.rate * _BURST_SECONDS
        self._level = min(full, self._level + (now - self._at) * self.rate)
        self._at = now
        missing = min(events, full) - self._level
        if missing > 0:
            detail = f"Expected at most {self.rate:g} events per second. Send more slowly."
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, detail, retry_after=missing / self.rate)
        self._level -= events


@dataclass(frozen=True)
class Client:
    """A client with its allowance."""

    name: str
    allowance: Allowance


class Keys:
    """The clients of a file of keys. If the file becomes invalid or disappears, the last keys stay valid."""

    def __init__(self, path: Path, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._rate = rate
        self._clock = clock
        self._allowances: dict[str, Allowance] = {}
        self._version = self._look()
        self._clients = self._read()
        self._looked = clock()

    def client(self, key: str) -> Client:
        """Return the client of a key; raise Refusal (401) for an unknown key."""
        now = self._clock()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._refresh()
        found = self._clients.get(_digest(key))
        if found is None:
            detail = "Expected a valid API key in the header Authorization: Bearer KEY."
            raise Refusal(HTTPStatus.UNAUTHORIZED, detail)
        return found

    def _refresh(self) -> None:
        version: object = None
        try:
            version = self._look()
            if version != self._version:
                self._clients = self._read()
                structlog.get_logger().info("keys read", clients=len({each.name for each in self._clients.values()}))
        except LakeproofError as error:
            if version != self._version:
                structlog.get_logger().error("keys not read", message=error.message, hint=error.hint)
        self._version = version

    def _look(self) -> object:
        """Return a fingerprint that changes with the file."""
        try:
            status = self._path.stat()
        except OSError as error:
            raise self._unreadable(error) from None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> dict[str, Client]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise UsageError(f"The file of API keys {self._path} is not UTF-8.", "Save it as UTF-8.") from None
        except OSError as error:
            raise self._unreadable(error) from None
        clients: dict[str, Client] = {}
        rates: dict[str, float | None] = {}
        for number, line in enumerate(text.splitlines(), 1):
            content = line.partition("#")[0].strip()
            if not content:
                continue
            found = _LINE.fullmatch(content)
            if not found:
                raise UsageError(
                    f"{self._path}, line {number}: expected CLIENT SHA256 [EVENTS_PER_SECOND].",
                    "`collector new-key CLIENT` prints a line.",
                )
            name = found["client"]
            rate = float(found["rate"]) if found["rate"] else self._rate
            if rate == 0:
                raise UsageError(
                    f"{self._path}, line {number}: expected a rate above 0, got {found['rate']}.",
                    "Remove the lines of a client to block it.",
                )
            if rates.setdefault(name, rate) != rate:
                raise UsageError(
                    f"{self._path}, line {number}: {name} has two different rates.", "Use one rate per client."
                )
            clients[found["digest"]] = Client(name, self._allowance(name, rate))
        return clients

    def _allowance(self, name: str, rate: float | None) -> Allowance:
        """Return the bucket of a client, which is kept when the file is read again."""
        known = self._allowances.get(name)
        if known is None or known.rate != rate:
            known = self._allowances[name] = Allowance(rate, self._clock)
        return known

    def _unreadable(self, error: OSError) -> UsageError:
        return UsageError(
            f"Cannot read the file of API keys {self._path}: {os.strerror(error.errno or 0)}.",
            "Check LAKE_COLLECTOR_KEYS and the permissions of the file.",
        )


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()
