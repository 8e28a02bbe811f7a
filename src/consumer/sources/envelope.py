"""The envelope: what every source yields for a batch, whatever it came from."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Envelope:
    """A landed batch, or the news that it cannot be had.

    Parameters
    ----------
    value
        The batch's bytes as landed, decompressed where its name says that it is compressed; None where they
        are too many to be had, and stay in the file.
    source
        Name of the file below the landing folder, or ``topic/partition``.
    landed_at
        When it landed, UTC.
    failure
        Why it could not be read, as (reason code, detail); then `value` is the part that could be read.
    content_hash
        Hash of its bytes as they lie there, see :func:`lakeproof.landing.zone.content_hash`; None
        where they were not read.
    """

    value: bytes | None
    source: str
    landed_at: datetime
    failure: tuple[str, str] | None = None
    content_hash: str | None = None
