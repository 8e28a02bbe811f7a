"""Read landed files into envelopes, within the tasks of a micro-batch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from consumer.native_hashes import file_hashes
from consumer.sources.envelope import Envelope, Recovered
from consumer.sources.files.unpack import TooLargeError, UnpackError, unpack, unpack_beginning
from lakeproof.landing.zone import LandingZone
from lakeproof.reasons import Reason
from lakeproof.settings import Limits
from lakeproof.state.landing_log import LandedFile
from lakeproof.storage.errors import FileAbsentError, FileChangedError

GZIP_SUFFIX = ".gz"
_GZIP_MAGIC = b"\x1f\x8b"
_HASHED_BYTES = 4 << 20  # files up to this size are hashed together


def envelopes(
    files: Iterable[LandedFile],
    zone: LandingZone,
    limits: Limits,
    touched: Callable[[LandedFile], None] | None = None,
) -> Iterator[Envelope]:
    """Read each file, provided that its content is still the listed one.

    A file that was overwritten, cannot be decompressed or is too large yields an envelope with a failure, which becomes
    a dead letter. So does a missing file that was given up. A file whose stored size is too large is not read.
    A file with the listed size but another tag, as after a copy or a restore, is read as it is now and reported to
    `touched`, unless that is None.
    """
    waiting: list[tuple[LandedFile, bytes | Envelope]] = []
    size = 0
    for file in files:
        found = _read(file, zone, limits, touched)
        waiting.append((file, found))
        size += 0 if isinstance(found, Envelope) else len(found)
        if size >= _HASHED_BYTES:
            yield from _unpacked(waiting, limits)
            waiting, size = [], 0
    yield from _unpacked(waiting, limits)


def recover(name: str, content: bytes, limits: Limits) -> Recovered | None:
    """Return the sound beginning of a compressed file that is damaged or truncated; None for any other file."""
    if not (name.endswith(GZIP_SUFFIX) and content.startswith(_GZIP_MAGIC)):
        return None
    try:
        found = unpack_beginning(content, limits.unpacked_bytes)
    except TooLargeError:
        return Recovered(b"", f"{name} unpacks to more, but LAKE_MAX_UNPACKED_BYTES is {limits.unpacked_bytes:,}")
    return Recovered(found[0], str(found[1])) if found else None


def _read(
    file: LandedFile, zone: LandingZone, limits: Limits, touched: Callable[[LandedFile], None] | None
) -> bytes | Envelope:
    """Read the content of a file; an envelope with a failure if it cannot be read."""
    try:
        content = _content(file, zone, limits, touched)
    except FileChangedError as error:
        return Envelope(b"", file.name, file.landed_at, (Reason.CHANGED, error.message))
    except FileAbsentError as error:
        if not file.given_up:
            raise
        return Envelope(b"", file.name, file.landed_at, (Reason.ABSENT, error.message))
    if content is None:
        return _too_large(file, limits, f"{file.name} has {file.size:,} bytes")
    return content


def _unpacked(found: Sequence[tuple[LandedFile, bytes | Envelope]], limits: Limits) -> Iterator[Envelope]:
    """Hash the contents of files together, and unpack compressed ones."""
    hashes = iter(file_hashes([content for _, content in found if not isinstance(content, Envelope)]))
    for file, content in found:
        if isinstance(content, Envelope):
            yield content
            continue
        read_hash = next(hashes)
        if not file.name.endswith(GZIP_SUFFIX):
            yield Envelope(content, file.name, file.landed_at, content_hash=read_hash)
            continue
        try:
            yield Envelope(unpack(content, limits.unpacked_bytes), file.name, file.landed_at, content_hash=read_hash)
        except UnpackError as error:
            yield Envelope(content, file.name, file.landed_at, (Reason.UNDECODABLE, str(error)), read_hash)
        except TooLargeError:
            what = f"{file.name} ({file.size:,} bytes) unpacks to more than {limits.unpacked_bytes:,} bytes"
            yield _too_large(file, limits, what, read_hash)


def _too_large(file: LandedFile, limits: Limits, what: str, read_hash: str | None = None) -> Envelope:
    limit = f"LAKE_MAX_UNPACKED_BYTES is {limits.unpacked_bytes:,}"
    failure = (Reason.BATCH_TOO_LARGE, f"{what}, but {limit}")
    return Envelope(None, file.name, file.landed_at, failure, read_hash)


def _content(
    file: LandedFile, zone: LandingZone, limits: Limits, touched: Callable[[LandedFile], None] | None
) -> bytes | None:
    """Read the content of a file; None if the file exists but is too large to be read."""
    uri = zone.uri_of(file.name)
    if file.size > limits.unpacked_bytes:
        if zone.stat(file.name) is None:
            raise FileAbsentError(uri)
        return None
    try:
        return zone.storage.read(uri, file.etag)
    except FileChangedError:
        now = zone.stat(file.name)
        if now is None:
            raise FileAbsentError(uri) from None
        if touched is None or now.size != file.size:
            raise
        content = zone.storage.read(uri, now.etag)
        touched(replace(file, etag=now.etag))
        return content
