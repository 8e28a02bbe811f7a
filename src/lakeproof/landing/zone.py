"""A stream's landing zone: files below one folder or prefix.

A file is identified by its path below the landing folder, so that the folder can be moved or mounted elsewhere. Names
are text: ``%`` and bytes that are not UTF-8 are percent-encoded. Files behind a linked folder have absolute paths.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes, unquote_to_bytes

from lakeproof.addresses import as_uri, encoded, folder_or_address, sqlite_path, with_merged_slashes
from lakeproof.catalog import catalog_errors, open_catalog, table_or_none
from lakeproof.landing.selection import EVERYTHING, Ignored, Selection
from lakeproof.settings import S3Settings, Settings
from lakeproof.storage import Storage, StoredFile, open_storage, scheme_of
from lakeproof.storage.local import local_path
from lakeproof.tables.names import LANDING_SOURCE, LANDING_START, NAMESPACES, stream_tables

if TYPE_CHECKING:
    from lakeproof.contracts.model import Landing

_NOT_UTF8 = re.compile("[\udc80-\udcff]")


class GivenBy(StrEnum):
    """The setting that defines the address of a landing zone."""

    SETTING = "LAKE_LANDING"
    CONTRACT = "the contract"
    OPTION = "--source"


@dataclass(frozen=True)
class LandingZone:
    """The folder or prefix where a stream's batches land."""

    root: str  # URI of the folder or prefix, resolved by :func:`landing_zone`
    s3: S3Settings
    selection: Selection = EVERYTHING
    given_by: GivenBy = GivenBy.SETTING

    @property
    def is_own(self) -> bool:
        """Whether the zone is outside of LAKE_LANDING, so that it may belong to others and is never written to."""
        return self.given_by is not GivenBy.SETTING

    @cached_property
    def storage(self) -> Storage:
        """The storage, opened at first use."""
        return open_storage(self.root, self.s3)

    def __getstate__(self) -> dict[str, object]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # an open storage cannot be pickled

    def name_of(self, uri: str) -> str:
        """Return the name of the file at `uri`."""
        rest = uri.removeprefix(f"{self.root}/")
        is_below = len(rest) < len(uri)
        if is_below and "%" not in rest:
            return rest
        if not self._is_local:
            return _as_text(rest.encode())
        if is_below:  # as in Hive's folders, whose names have a "="
            return _as_text(unquote_to_bytes(rest))
        path = os.fsencode(local_path(uri))
        return _as_text(path.removeprefix(self._folder + b"/"))

    def uri_of(self, name: str) -> str:
        """Return the URI of the file called `name`."""
        raw = unquote_to_bytes(name)
        if not self._is_local:
            return f"{self.root}/{raw.decode()}"
        return "file://" + quote_from_bytes(raw if raw.startswith(b"/") else self._folder + b"/" + raw)

    def list(self) -> Iterator[tuple[str, StoredFile]]:
        """List every file with its name, including hidden files."""
        return ((self.name_of(file.uri), file) for file in self.storage.list())

    def files(self) -> Iterator[tuple[str, StoredFile]]:
        """List the files that are read, with their names."""
        return ((name, file) for name, file in self.list() if not self.ignores(name, file))

    def ignores(self, name: str, file: StoredFile) -> Ignored | None:
        """Return why a file is not read; None if it is read."""
        return self.selection.ignores(name, file, is_local=self._is_local)

    def ignores_name(self, name: str) -> Ignored | None:
        """Return why no file with a name is read."""
        return self.selection.ignores_name(name, is_local=self._is_local)

    def list_recent(self, after: str | None) -> Iterator[tuple[str, StoredFile]]:
        """List the files that may be new, see :meth:`lakeproof.storage.base.Storage.list_recent`; `after` is a name."""
        recent = self.storage.list_recent(None if after is None else self.uri_of(after))
        return ((self.name_of(file.uri), file) for file in recent)

    def contains(self, uri: str) -> bool:
        """Whether an address is the root or below it."""
        return f"{uri}/".startswith(f"{self.root}/")

    def overlaps(self, other: "LandingZone") -> bool:
        """Whether one zone contains the other."""
        return self.contains(other.root) or other.contains(self.root)

    def stat(self, name: str) -> StoredFile | None:
        """Return the metadata of one file; None if it does not exist."""
        return self.storage.stat(self.uri_of(name))

    def is_there(self) -> bool:
        """Whether the local folder exists; always true on S3."""
        return not self._is_local or local_path(self.root).is_dir()

    @cached_property
    def _is_local(self) -> bool:
        return scheme_of(self.root) == "file"

    @cached_property
    def _folder(self) -> bytes:
        return os.fsencode(local_path(self.root))


def landing_zone(settings: Settings, stream: str, ledger: Mapping[str, str] | None = None) -> LandingZone:
    """Return the landing zone of a stream, with links and ``..`` resolved.

    The properties of the stream's ledger, which are looked up by default, record the address of ``consumer run
    --source`` and where the stream begins.
    """
    recorded = _ledger_properties(settings, stream) if ledger is None else ledger
    asked = landing_of_contract(settings, stream)
    start = recorded.get(LANDING_START)
    begin = datetime.fromisoformat(start) if start else None
    if source := settings.landing.source or recorded.get(LANDING_SOURCE):
        zone, given_by = zone_at(as_uri(folder_or_address(source)), settings.s3_of_source()), GivenBy.OPTION
    elif asked.location:
        s3 = settings.s3_of_source(asked.endpoint_url)
        zone, given_by = zone_at(as_uri(folder_or_address(asked.location)), s3), GivenBy.CONTRACT
    else:
        zone, given_by = zone_at(f"{settings.landing.uri}/{stream}", settings.s3), GivenBy.SETTING
    of_others = given_by is not GivenBy.SETTING
    return replace(zone, given_by=given_by, selection=Selection(asked.include, asked.exclude, begin, of_others))


def landing_of_contract(settings: Settings, stream: str) -> "Landing":
    """Return the landing options of a stream's contract; the defaults if there is no contract."""
    from lakeproof.contracts.model import DEFAULT_LANDING

    path = settings.contracts / f"{stream}.yaml"
    text = path.read_bytes() if path.is_file() else b""
    if b"landing" not in text and b"\0" not in text:  # nearly always, unless it is UTF-16; parsing takes longer
        return DEFAULT_LANDING
    from lakeproof.contracts import load_contract

    return load_contract(settings.contracts, stream).landing


def _ledger_properties(settings: Settings, stream: str) -> Mapping[str, str]:
    database = sqlite_path(settings.catalog.uri)
    if database and not database.exists():  # a look-up must not create it
        return {}
    with catalog_errors():
        ledger = table_or_none(open_catalog(settings), stream_tables(stream).ledger)
    return ledger.properties if ledger else {}


def zone_at(uri: str, s3: S3Settings) -> LandingZone:
    """Return the landing zone at an address, with links and ``..`` resolved."""
    if scheme_of(uri) == "file":
        return LandingZone("file://" + quote_from_bytes(os.fsencode(local_path(uri).resolve())), s3)
    return LandingZone(with_merged_slashes(uri), s3)


def table_zones(settings: Settings) -> list[LandingZone]:
    """Return the folders with tables of the warehouse, where maintenance removes unknown files.

    With a REST catalog, the list is empty: only the catalog's server knows the warehouse.
    """
    if settings.catalog.kind != "sql":
        return []
    return [zone_at(encoded(f"{settings.catalog.warehouse_uri}/{each}"), settings.s3) for each in NAMESPACES]


def content_hash(content: bytes) -> str:
    """Return the 128-bit BLAKE2b hash of a file, which the ledger keeps to recognize copies."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _as_text(raw: bytes) -> str:
    text = raw.replace(b"%", b"%25").decode(errors="surrogateescape")
    return _NOT_UTF8.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", text)
