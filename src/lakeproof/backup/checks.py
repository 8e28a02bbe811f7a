"""Find what a restore would miss: files of tables, and records that landed after the backup."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakeproof.addresses import encoded
from lakeproof.errors import UnavailableError
from lakeproof.kafka.offsets import Offsets
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.kafka.topic import Topic
from lakeproof.landing.zone import landing_zone
from lakeproof.move.outside import plain
from lakeproof.settings import Settings
from lakeproof.state.given_up import given_up_before
from lakeproof.storage import open_storage, scheme_of
from lakeproof.storage.local import local_path
from lakeproof.tables.names import MARKER

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.metadata import TableMetadata

_AT_ONCE = 8


class Files:
    """Checks whether files of tables exist."""

    def __init__(self, settings: Settings, io: "FileIO") -> None:
        self._settings = settings
        self._io = io

    def missing(self, metadata: "TableMetadata", snapshot_id: int) -> list[str]:
        """Return the files of a snapshot that are gone."""
        location = encoded(plain(metadata.location))
        # A bucket is listed: a request for each object would take minutes.
        known = (
            {file.uri for file in open_storage(location, self._settings.s3).list()}
            if scheme_of(location) == "s3"
            else set()
        )
        storage = open_storage(location, self._settings.s3)

        def is_missing(uri: str) -> bool:
            return plain(uri) not in known and storage.stat(encoded(plain(uri))) is None

        snapshot = metadata.snapshot_by_id(snapshot_id)
        if snapshot is None or is_missing(snapshot.manifest_list):
            return [snapshot.manifest_list if snapshot else f"snapshot {snapshot_id}"]
        manifests = snapshot.manifests(self._io)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            gone = [each.manifest_path for each in manifests if is_missing(each.manifest_path)]
            there = [each for each in manifests if each.manifest_path not in gone]
            files = {uri for found in pool.map(self._files, there) for uri in found}
            ordered = sorted(files)
            return gone + [uri for uri, is_gone in zip(ordered, pool.map(is_missing, ordered), strict=True) if is_gone]

    def _files(self, manifest: "ManifestFile") -> list[str]:
        return [each.data_file.file_path for each in manifest.fetch_manifest_entry(self._io, discard_deleted=True)]


def lost_files(
    settings: Settings, io: "FileIO", stream: str, saved: "TableMetadata", live: "TableMetadata | None"
) -> list[str]:
    """Return landed files that are in the tables but not in the backup, and can no longer be read."""
    if live is None:
        return []
    zone = landing_zone(settings, stream, live.properties)
    new = _sources(live, io) - _sources(saved, io)
    if not new:
        return []
    if not zone.is_there():
        raise UnavailableError(f"The landing folder {local_path(zone.root)} does not exist.", "Mount its disk.")
    return sorted(new - {name for name, _ in zone.list()})


def lost_offsets(settings: Settings, stream: str, saved: "TableMetadata") -> list[str]:
    """Return ranges of messages that came after the backup, and are no longer in the topic."""
    recorded = recorded_topic(saved.properties)
    if recorded is None:
        return []
    marker = saved.properties.get(f"{MARKER}bronze-{stream}")
    position = Offsets.parse(json.loads(marker)["marker"]["end"]) if marker else recorded.start
    topic = Topic(settings.kafka, recorded.topic)
    topic_id, partitions = topic.identity()
    recorded.check_id(topic_id)
    lost = []
    for partition, extent in topic.extents(partitions).items():
        first = max(position.next(partition), given_up_before(settings.state.database, stream, partition))
        if first < extent.first:
            lost.append(f"{recorded.topic}/{partition}: offsets {first:,} to {extent.first - 1:,}")
    return lost


def _sources(ledger: "TableMetadata", io: "FileIO") -> set[str]:
    """Return the names of the files in a ledger."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.table import Table

    if ledger.current_snapshot() is None:
        return set()
    table = Table(("ledger", "copy"), ledger, "", io, NoopCatalog("copy"))
    rows = table.scan(selected_fields=("source",)).to_arrow_batch_reader()
    return {str(name) for batch in rows for name in batch.column("source").to_pylist()}
