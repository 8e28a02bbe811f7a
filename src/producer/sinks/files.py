"""Land batches as files, in a folder or in a bucket."""

from typing import TYPE_CHECKING

from lakeproof.errors import UsageError
from lakeproof.settings import Settings
from lakeproof.storage import Storage, open_storage
from producer.sinks import Sink

if TYPE_CHECKING:
    from producer.batches import Batch


def connect(uri: str, settings: Settings) -> Sink:
    """Create the sink; the folder or bucket is opened at the first write."""
    return _FileSink(open_storage(uri, settings.s3), uri.rstrip("/"))


class _FileSink(Sink):
    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._root = root

    def write(self, batch: "Batch") -> None:
        try:
            self._storage.write_new(f"{self._root}/{batch.name}", batch.data)
        except FileExistsError:
            raise UsageError(
                f"{self._root}/{batch.name} already exists, and a landed batch is never overwritten.",
                "Use another --start or --target. Batches that landed before are kept.",
            ) from None
