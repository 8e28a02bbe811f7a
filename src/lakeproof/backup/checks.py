"""Find what a restore would miss: files of tables, and records that landed after the backup."""

import json
from collections.abc import Iterable, Iterator, Sequence
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
    from pyiceberg.table import FileScanTask, Table
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
    added = _added(saved, live, io, ("source", REPLAY))
    new = {name for name, replay in added if replay is None}
    if letters and (again := {name for name, replay in added if replay is not None}):
        new |= again & _without_bytes(letters, io)
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
    added = _added(saved, live, io, (SOURCE, POSITION, LETTER, ATTEMPT))
    return {source for source, *_ in added} & _without_bytes(letters, io)


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


def _added(
    saved: "TableMetadata | None", live: "TableMetadata", io: "FileIO", columns: Sequence[str]
) -> set[tuple[Any, ...]]:
    """Return rows that a table has now and had not then. They must be unique by `columns`.

    Data files of both are not read: a ledger has millions of rows a year. Numbers of micro-batches would not tell which
    rows are new, since a stream uses them again after a restore.
    """
    after, before = _tasks(live, io), _tasks(saved, io) if saved else {}
    gone = [before[key] for key in before.keys() - after.keys()]
    came = [after[key] for key in after.keys() - before.keys()]
    added = set(_rows(live, io, came, columns))
    if saved and added:
        added.difference_update(_rows(saved, io, gone, columns))
    return added


def _tasks(metadata: "TableMetadata", io: "FileIO") -> "dict[tuple[str, frozenset[str]], FileScanTask]":
    """Return the data files of a table by their names and those of their files with deletes."""
    return {
        (task.file.file_path, frozenset(each.file_path for each in task.delete_files)): task
        for task in _table(metadata, io).scan().plan_files()
    }


def _rows(
    metadata: "TableMetadata", io: "FileIO", tasks: "Iterable[FileScanTask]", columns: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Read columns of data files; those that the table lacks are null."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    held = [name for name in columns if name in metadata.schema().column_names]
    scan = ArrowScan(metadata, io, metadata.schema().select(*held), AlwaysTrue())
    for task in tasks:
        for batch in scan.to_record_batches([task]):  # of several, it would keep all rows
            nulls = [None] * batch.num_rows
            found = [batch.column(name).to_pylist() if name in held else nulls for name in columns]
            yield from zip(*found, strict=True)


def _without_bytes(letters: "TableMetadata", io: "FileIO") -> set[str]:
    """Return sources of dead letters without bytes."""
    reader = _table(letters, io).scan(f"{RAW} IS NULL", selected_fields=(SOURCE,)).to_arrow_batch_reader()
    return {row[SOURCE] for batch in reader for row in batch.to_pylist()}


def _table(metadata: "TableMetadata", io: "FileIO") -> "Table":
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.table import Table

    return Table(("a", "copy"), metadata, "", io, NoopCatalog("copy"))
