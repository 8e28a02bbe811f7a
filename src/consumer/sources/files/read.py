"""Read landed files into envelopes, within the tasks of a micro-batch."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from consumer.sources.envelope import Envelope, Recovered
from consumer.sources.files.unpack import TooLargeError, UnpackError, unpack, unpack_beginning
from lakeproof.landing.zone import LandingZone, content_hash
from lakeproof.reasons import Reason
from lakeproof.settings import Limits
from lakeproof.state.landing_log import LandedFile
from lakeproof.storage.errors import FileAbsentError, FileChangedError

GZIP_SUFFIX = ".gz"
_GZIP_MAGIC = b"\x1f\x8b"


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
    for file in files:
        try:
            content = _read(file, zone, limits, touched)
        except FileChangedError as error:
            yield Envelope(b"", file.name, file.landed_at, (Reason.CHANGED, error.message))
            continue
        except FileAbsentError as error:
            if not file.given_up:
                raise
            yield Envelope(b"", file.name, file.landed_at, (Reason.ABSENT, error.message))
            continue
        if content is None:
            yield _too_large(file, limits, f"{file.name} has {file.size:,} bytes")
            continue
        read_hash = content_hash(content)
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


def recover(name: str, content: bytes, limits: Limits) -> Recovered | None:
    """Return the sound beginning of a compressed file that is damaged or truncated; None for any other file."""
    if not (name.endswith(GZIP_SUFFIX) and content.startswith(_GZIP_MAGIC)):
        return None
    try:
        found = unpack_beginning(content, limits.unpacked_bytes)
    except TooLargeError:
        return Recovered(b"", f"{name} unpacks to more, but LAKE_MAX_UNPACKED_BYTES is {limits.unpacked_bytes:,}")
    return Recovered(found[0], str(found[1])) if found else None


def _too_large(file: LandedFile, limits: Limits, what: str, read_hash: str | None = None) -> Envelope:
    limit = f"LAKE_MAX_UNPACKED_BYTES is {limits.unpacked_bytes:,}"
    failure = (Reason.BATCH_TOO_LARGE, f"{what}, but {limit}")
    return Envelope(None, file.name, file.landed_at, failure, read_hash)


def _read(
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
