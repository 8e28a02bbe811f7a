"""Growth of a table since its last compaction. Only its metadata is read."""

from dataclasses import dataclass

from consumer.iceberg.append import OpenTable
from consumer.iceberg.rewrite import SWAPPED


@dataclass(frozen=True)
class Growth:
    """Commits to a table, and the small data files that they have added."""

    newest: int = 0
    """Sequence number of the newest commit."""
    commits: int = 0
    files: int = 0
    bytes: int = 0


def growth(table: OpenTable, small: int, after: int = 0) -> Growth:
    """Return the growth since the last compaction or the sequence number `after`, whichever is later.

    A file is small below `small` bytes. If the files of a commit are small on average, all of them count as small:
    snapshot summaries have no more detail.
    """
    if table.loaded.currentSnapshot() is None:
        return Growth()
    newest = int(table.loaded.currentSnapshot().sequenceNumber())
    if newest <= after:
        return Growth(newest)
    metadata = table.metadata()
    snapshots = {each["snapshot-id"]: each for each in metadata["snapshots"]}
    at = snapshots.get(metadata["current-snapshot-id"])
    commits = files = size = 0
    while at and at["sequence-number"] > after and SWAPPED not in at["summary"]:
        added = int(at["summary"].get("added-data-files", 0))
        of_all = int(at["summary"].get("added-files-size", 0))
        commits += 1
        if of_all < small * added:
            files, size = files + added, size + of_all
        at = snapshots.get(at.get("parent-snapshot-id"))
    return Growth(newest, commits, files, size)
