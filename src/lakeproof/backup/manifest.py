"""A backup: a folder whose manifest is written last, so that a folder without one is not a backup."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from urllib.parse import unquote

from lakeproof.addresses import as_uri, folder_or_address
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.holds import OF_BACKUP
from lakeproof.settings import Settings
from lakeproof.storage import Storage, open_storage, scheme_of
from lakeproof.storage.errors import FileAbsentError
from lakeproof.storage.local import local_path

MANIFEST = "manifest.json"
STATE = "state.db"
_FORMAT = 1


@dataclass(frozen=True)
class SavedTable:
    """A table at the time of a backup."""

    name: str
    uuid: str
    snapshot_id: int | None  # None for a table without rows
    metadata_location: str
    rows: int
    markers: dict[str, str]  # position, by query


@dataclass(frozen=True)
class Manifest:
    """The content of a backup."""

    id: str
    taken_at: datetime
    kept_until: datetime  # the tags keep the files of the snapshots until then
    version: str  # of lakeproof
    catalog: str
    warehouse: str
    tables: list[SavedTable]
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file of the backup, by name."""

    @property
    def tag(self) -> str:
        """Name of the tags."""
        return OF_BACKUP + self.id

    def as_json(self) -> str:
        """Format the manifest as JSON."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=2, default=datetime.isoformat)

    @classmethod
    def parse(cls, text: bytes, origin: str) -> "Manifest":
        """Parse the text of a manifest."""
        try:
            found = json.loads(text)
            number = found.pop("format")
            if number == _FORMAT:
                times = {name: datetime.fromisoformat(found[name]) for name in ("taken_at", "kept_until")}
                return cls(**found | times | {"tables": [SavedTable(**each) for each in found["tables"]]})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LakeproofError(f"{origin}/{MANIFEST} is not readable: {error}.", "Use another backup.") from error
        raise UsageError(f"{origin} was written by a newer version of lakeproof.", "Use that version or a newer one.")


@dataclass(frozen=True)
class Folder:
    """The folder of a backup, or of several."""

    uri: str
    settings: Settings

    @cached_property
    def storage(self) -> Storage:
        """The storage, opened at first use."""
        return open_storage(self.uri, self.settings.s3)

    def child(self, name: str) -> "Folder":
        """Return a folder below this one."""
        return Folder(f"{self.uri}/{name}", self.settings)

    @property
    def parent(self) -> "Folder":
        """The folder above this one."""
        return Folder(self.uri.rpartition("/")[0], self.settings)

    def __str__(self) -> str:
        return str(local_path(self.uri)) if scheme_of(self.uri) == "file" else self.uri

    def read(self, name: str, manifest: Manifest) -> bytes:
        """Read a file of a backup, and check that it is unchanged."""
        try:
            content = self.storage.read(f"{self.uri}/{name}")
        except FileAbsentError:
            content = None
        if content is None or digest(content) != manifest.files.get(name):
            raise LakeproofError(
                f"The backup {self} is damaged: {name} is {'missing' if content is None else 'not what was written'}.",
                "Use another backup. Nothing was changed.",
            )
        return content

    def manifest(self) -> Manifest:
        """Read the manifest of a backup; raise UsageError if this is not a backup."""
        try:
            return Manifest.parse(self.storage.read(f"{self.uri}/{MANIFEST}"), str(self))
        except FileAbsentError:
            pass
        found = [each.id for each, _ in self.backups()]
        hint = (
            f"It has backups: the newest one is {self.child(found[-1])}." if found else "`lakeproof backup` makes one."
        )
        raise UsageError(f"{self} is not a backup, or one that was interrupted.", hint) from None

    def backups(self) -> Iterator[tuple[Manifest, "Folder"]]:
        """Yield all backups in this folder, the oldest first."""
        names = sorted(file.uri for file in self.storage.list() if file.uri.endswith(f"/{MANIFEST}"))
        for uri in names:
            name = unquote(uri.rsplit("/", 2)[1])
            folder = self.child(name)
            try:
                yield folder.manifest(), folder
            except UsageError:
                continue  # in a deeper folder, or written by a newer version


def folder_at(settings: Settings, where: str | None) -> Folder:
    """Return the folder at a path or address; by default, the folder for backups of the lake."""
    given = str(settings.home / "backups") if where is None else folder_or_address(where)
    uri = as_uri(given)
    return Folder(as_uri(str(local_path(uri).resolve())) if scheme_of(uri) == "file" else uri, settings)


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(content).hexdigest()


def now() -> datetime:
    """Return the current time in UTC, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)
