"""Sizes of tables from their metadata: no data file is opened, and each manifest is read once."""

from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError

from consumer.maintenance.maintain import LEAST_FILES, tables_of
from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

# Maximum number of new manifests of a table that one look reads: a table with thousands of them takes several looks.
_MANIFESTS = 100
_Small = dict[Hashable, tuple[int, int]]
"""Number and bytes of small files, by partition."""


@dataclass(frozen=True)
class TableSize:
    """The size of a table."""

    table: str
    rows: int
    files: int
    bytes: int
    snapshots: int
    small_files: int | None  # data files that maintenance would compact; None until all manifests were read
    rewritten_at: datetime | None  # when files were compacted or manifests rewritten, if that snapshot still exists


class Sizes:
    """Sizes of the tables of streams; manifests are remembered from look to look."""

    def __init__(self, settings: Settings, streams: Sequence[str]) -> None:
        self._settings = settings
        self._streams = streams
        # Small files by table, manifest and size limit: a manifest never changes.
        self._small: dict[str, dict[tuple[str, int], _Small]] = {}

    def look(self) -> list[TableSize]:
        """Return the sizes of all tables, without tables that are dropped meanwhile."""
        catalog, found = open_catalog(self._settings), []
        with catalog_errors():
            for name, own in tables_of(self._settings, self._streams).items():
                with suppress(NoSuchTableError):
                    found.append(self._size(catalog.load_table(name), name, own.file_mib << 19))
        return found

    def _size(self, table: "Table", name: str, least: int) -> TableSize:
        from pyiceberg.table.snapshots import Operation

        snapshot = table.current_snapshot()
        summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
        rows, deleted, files, size = (
            int(summary.get(f"total-{what}", 0)) for what in ("records", "position-deletes", "data-files", "files-size")
        )
        rewritten = [
            each.timestamp_ms
            for each in table.snapshots()
            if each.summary and each.summary.operation is Operation.REPLACE
        ]
        rewritten_at = datetime.fromtimestamp(max(rewritten) / 1000, UTC) if rewritten else None
        small = self._small_files(table, name, least)
        return TableSize(name, rows - deleted, files, size, len(table.snapshots()), small, rewritten_at)

    def _small_files(self, table: "Table", name: str, least: int) -> int | None:
        """Count the data files that are smaller than `least` bytes, in partitions with enough of them to compact."""
        from pyiceberg.manifest import ManifestContent

        snapshot = table.current_snapshot()
        manifests = snapshot.manifests(table.io) if snapshot else []
        of_data = {(each.manifest_path, least): each for each in manifests if each.content == ManifestContent.DATA}
        before = self._small.get(name, {})
        known = {key: before[key] for key in of_data if key in before}
        for key in islice([key for key in of_data if key not in known], _MANIFESTS):
            known[key] = _small(table, of_data[key], least)
        self._small[name] = known
        if len(known) < len(of_data):
            return None
        files, size = Counter[Hashable](), Counter[Hashable]()
        for partition, (count, total) in chain.from_iterable(each.items() for each in known.values()):
            files[partition] += count
            size[partition] += total
        # Counted by partition, as Iceberg plans a compaction. Otherwise, a table with a small file for each day would
        # seem to need maintenance after some years.
        return sum(count for each, count in files.items() if count >= LEAST_FILES or size[each] > 2 * least)


def _small(table: "Table", manifest: "ManifestFile", least: int) -> _Small:
    """Return number and bytes of the data files that a manifest lists and that are smaller than `least` bytes."""
    found: _Small = {}
    for file in (entry.data_file for entry in manifest.fetch_manifest_entry(table.io)):
        if file.file_size_in_bytes < least:
            partition = (file.spec_id, *map(str, (file.partition[at] for at in range(len(file.partition)))))
            count, size = found.get(partition, (0, 0))
            found[partition] = count + 1, size + file.file_size_in_bytes
    return found


def folder_size(folder: Path) -> int:
    """Return the size of the files below a folder in bytes; files that disappear meanwhile are skipped."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total
