"""Parse the parts of table metadata that the reader needs.

PyIceberg creates an object for each snapshot, which takes half a second for nine tables of 1,800 snapshots, and its
import takes longer than most commands of the reader.
"""

from collections.abc import Mapping, Sequence

import msgspec


class Snapshot(msgspec.Struct, frozen=True, rename="kebab"):
    """A snapshot of a table."""

    snapshot_id: int
    timestamp_ms: int
    parent_snapshot_id: int | None = None
    summary: Mapping[str, str] = {}


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Schema(msgspec.Struct, frozen=True, rename="kebab"):
    fields: Sequence[_Named] = ()
    schema_id: int = 0


class TableMetadata(msgspec.Struct, frozen=True, rename="kebab"):
    """A table at one point in time."""

    current_snapshot_id: int | None = None
    snapshots: Sequence[Snapshot] = ()
    properties: Mapping[str, str] = {}
    current_schema_id: int = 0
    schemas: Sequence[msgspec.Raw] = ()

    def current_snapshot(self) -> Snapshot | None:
        """Return the current snapshot; None before the first commit."""
        return self.snapshot_by_id(self.current_snapshot_id)

    def snapshot_by_id(self, snapshot_id: int | None) -> Snapshot | None:
        """Return the snapshot with an id; None if it does not exist."""
        # The newest snapshot is requested most often, and is the last one.
        return next((each for each in reversed(self.snapshots) if each.snapshot_id == snapshot_id), None)

    @property
    def schema(self) -> bytes:
        """The current schema, as JSON."""
        ids = [msgspec.json.decode(each, type=_Schema).schema_id for each in self.schemas]
        return bytes(self.schemas[ids.index(self.current_schema_id)])

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns."""
        return [each.name for each in msgspec.json.decode(self.schema, type=_Schema).fields]


class _Identified(msgspec.Struct, frozen=True, rename="kebab"):
    snapshot_id: int


_METADATA = msgspec.json.Decoder(TableMetadata)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SNAPSHOTS = msgspec.json.Decoder(list[msgspec.Raw])
_IDENTIFIED = msgspec.json.Decoder(_Identified)


def parse_metadata(text: str) -> TableMetadata:
    """Parse the text of a metadata file."""
    return _METADATA.decode(text)


def without_history(text: str) -> str:
    """Return the text of a metadata file with only the current snapshot, which is all that an engine needs."""
    members = _MEMBERS.decode(text)
    newest = members.get("current-snapshot-id", b"null")
    snapshots = _SNAPSHOTS.decode(members.get("snapshots", b"[]"))
    current = [each for each in snapshots if b"%d" % _IDENTIFIED.decode(each).snapshot_id == bytes(newest)]
    kept = {name: value for name, value in members.items() if name not in ("refs", "snapshot-log", "metadata-log")}
    return msgspec.json.encode(kept | {"snapshots": current}).decode()
