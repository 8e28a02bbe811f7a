"""Find what a restore would miss: files of tables, and records that landed after the backup."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from lakeproof.addresses import encoded
from lakeproof.errors import UnavailableError
from lakeproof.kafka.offsets import Offsets, Range, place_of
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.kafka.topic import Topic
from lakeproof.landing.zone import landing_zone
from lakeproof.move.outside import plain
from lakeproof.settings import Settings
from lakeproof.state.given_up import given_up_in
from lakeproof.storage import open_storage, scheme_of
from lakeproof.storage.local import local_path
from lakeproof.tables.names import ATTEMPT, LETTER, MARKER, POSITION, RAW, REPLAY, SOURCE

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
    settings: Settings,
    io: "FileIO",
    stream: str,
    saved: "TableMetadata",
    live: "TableMetadata | None",
    letters: "TableMetadata | None" = None,
) -> list[str]:
    """Return landed files that are in the tables but not in the backup, and can no longer be read.

    `saved` and `live` are the ledger then and now, `letters` the dead letters then. If these have a unit without its
    bytes that was replayed since then, its file is needed again.
    """
    if live is None:
        return []
    zone = landing_zone(settings, stream, live.properties)
    new = {name for (name,) in _rows(live, io, ["source"]) - _rows(saved, io, ["source"])}
    replays = ["source", REPLAY]
    again = {name for name, number in _rows(live, io, replays) - _rows(saved, io, replays) if number is not None}
    if letters and again:
        new |= again & {name for (name,) in _rows(letters, io, [SOURCE], RAW)}
    if not new:
        return []
    if not zone.is_there():
        raise UnavailableError(f"The landing folder {local_path(zone.root)} does not exist.", "Mount its disk.")
    return sorted(new - {name for name, _ in zone.list()})


def past_ranges(stream: str, saved: "TableMetadata", live: "TableMetadata | None") -> list[Range]:
    """Return ranges from before the beginning of a stream of Kafka that its ledger has now and had not then."""
    recorded = recorded_topic(saved.properties)
    if recorded is None or live is None or recorded != recorded_topic(live.properties):
        return []
    return _position(stream, live).past_since(_position(stream, saved))


def replayed_since(
    io: "FileIO",
    letters: "TableMetadata | None",
    saved: "TableMetadata | None",
    live: "TableMetadata | None",
) -> set[str]:
    """Return sources that a replay has read again after the backup, since a unit of theirs has no bytes.

    `letters` are the dead letters then, `saved` and `live` the attempts then and now.
    """
    if letters is None or live is None:
        return set()
    columns = [SOURCE, POSITION, LETTER, ATTEMPT]
    new = _rows(live, io, columns) - (_rows(saved, io, columns) if saved else set())
    return {source for source, *_ in new} & {source for (source,) in _rows(letters, io, [SOURCE], RAW)}


def lost_offsets(
    settings: Settings,
    stream: str,
    saved: "TableMetadata",
    live: "TableMetadata | None",
    state: Engine,
    replayed: Iterable[str] = (),
) -> list[str]:
    """Return ranges of messages that came after the backup, or were read since, and may no longer be in the topic.

    `saved` and `live` are the ledger then and now, `state` the state database of the backup, and `replayed` are
    messages of :func:`replayed_since`.
    """
    recorded = recorded_topic(saved.properties)
    if recorded is None:
        return []
    position = _position(stream, saved)
    topic = Topic(settings.kafka, recorded.topic)
    topic_id, partitions = topic.identity()
    recorded.check_id(topic_id)
    extents = topic.extents(partitions)
    # Which messages a compaction has removed is unknown without reading them.
    read_since = _position(stream, live) if live and topic.is_compacted() else position
    compacted: list[Range] = []
    lost = [
        (partition, first, min(end, extents[partition].first))
        for partition, first, end in past_ranges(stream, saved, live)
        if partition in extents
    ]
    for partition, extent in extents.items():
        # What was given up after the backup is not given up any more, and may have been read before.
        begin = max(position.next(partition), given_up_in(state, stream, partition))
        lost.append((partition, begin, extent.first))
        compacted.append((partition, max(begin, extent.first), read_since.next(partition)))
    for _, partition, offset in sorted(map(place_of, replayed)):
        if partition in extents and offset < extents[partition].first:
            lost.append((partition, offset, offset + 1))
    return [
        f"{recorded.topic}/{partition}: offsets {first:,} to {end - 1:,}{remark}"
        for found, remark in ((lost, ""), (compacted, ", some of which compaction may have removed"))
        for partition, first, end in found
        if first < end
    ]


def _position(stream: str, ledger: "TableMetadata") -> Offsets:
    """Return the position of a stream of Kafka in its ledger."""
    marker = ledger.properties.get(f"{MARKER}bronze-{stream}")
    if marker:
        return Offsets.parse(json.loads(marker)["marker"]["end"])
    recorded = recorded_topic(ledger.properties)
    return recorded.start if recorded else Offsets("")


def _rows(metadata: "TableMetadata", io: "FileIO", columns: list[str], null: str = "") -> set[tuple[Any, ...]]:
    """Return columns of a ledger or of dead letters, where the column `null` is null; nothing if one is missing."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.table import Table

    if metadata.current_snapshot() is None or not {*columns, *filter(None, [null])} <= {
        *metadata.schema().column_names
    }:
        return set()
    table = Table(("ledger", "copy"), metadata, "", io, NoopCatalog("copy"))
    found = table.scan(
        f"{null} IS NULL" if null else AlwaysTrue(), selected_fields=tuple(columns)
    ).to_arrow_batch_reader()
    return {row for batch in found for row in zip(*(batch.column(each).to_pylist() for each in columns), strict=True)}
