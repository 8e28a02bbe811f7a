"""Read landed files into envelopes, within the tasks of a micro-batch."""

import gzip
import heapq
import zlib
from collections.abc import Iterable, Iterator

from consumer.sources.envelope import Envelope
from consumer.sources.landing_log import LandedFile
from lakeproof.reasons import Reason
from lakeproof.storage import Storage
from lakeproof.storage.errors import FileChangedError

GZIP_SUFFIX = ".gz"


def envelopes(files: Iterable[LandedFile], storage: Storage) -> Iterator[Envelope]:
    """Read each file, on the condition that it is still the one that was listed.

    A file that changed or cannot be decompressed yields an envelope with a failure: its fate is a dead letter, and
    the stream goes on.

    Raises
    ------
    UnavailableError
        A file cannot be read for now; the micro-batch fails and is tried again, with the same files.
    """
    for file in files:
        try:
            content = storage.read(file.uri, file.etag)
        except FileChangedError as error:
            yield Envelope(b"", file.uri, file.landed_at, (Reason.CHANGED, error.message))
            continue
        if not file.uri.endswith(GZIP_SUFFIX):
            yield Envelope(content, file.uri, file.landed_at)
            continue
        try:
            yield Envelope(gzip.decompress(content), file.uri, file.landed_at)
        except (OSError, EOFError, zlib.error) as error:
            yield Envelope(content, file.uri, file.landed_at, (Reason.UNDECODABLE, str(error)))


def balanced_groups(files: Iterable[LandedFile], groups: int) -> list[list[LandedFile]]:
    """Deal files to groups of about the same number of bytes: the largest first, each to the lightest group."""
    heap: list[tuple[int, int]] = [(0, index) for index in range(groups)]
    dealt: list[list[LandedFile]] = [[] for _ in range(groups)]
    for file in sorted(files, key=lambda item: (-item.size, item.seq)):
        size, lightest = heap[0]
        dealt[lightest].append(file)
        heapq.heapreplace(heap, (size + file.size, lightest))
    return [sorted(members, key=lambda item: item.seq) for members in dealt if members]
