"""Land batches as files, in a folder or in a bucket."""

from typing import TYPE_CHECKING, Any

from lakeproof.errors import UsageError
from lakeproof.settings import Settings
from lakeproof.storage import Storage, open_storage

if TYPE_CHECKING:
    from producer.batches import Batch


def connect(uri: str, settings: Settings) -> "FileSink":
    """Create the sink; the folder or bucket is opened at the first write."""
    return FileSink(open_storage(uri, settings.s3), uri.rstrip("/"))


class FileSink:
    """See :class:`producer.sinks.Sink`."""

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self._root = root

    def write(self, batch: "Batch") -> None:
        """Land a batch as a new file; see the protocol."""
        try:
            self._storage.write_new(f"{self._root}/{batch.name}", batch.data)
        except FileExistsError:
            raise UsageError(
                f"{self._root}/{batch.name} already exists, and a landed batch is never overwritten.",
                "Use another --start or --target. Batches that landed before are kept.",
            ) from None

    def landed(self) -> dict[str, Any]:
        """Nothing: file names are known."""
        return {}
