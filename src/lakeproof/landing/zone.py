"""A stream's landing zone: files below one folder or prefix.

A file is identified by its path below the landing folder, so that the folder can be moved or mounted elsewhere. Names
are text: ``%`` and bytes that are not UTF-8 are percent-encoded. Files behind a linked folder have absolute paths.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote_from_bytes, unquote_to_bytes

from lakeproof.settings import S3Settings, Settings
from lakeproof.storage import Storage, StoredFile, open_storage, scheme_of
from lakeproof.storage.local import local_path

_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_IN_PROGRESS = (".tmp", "._COPYING_")


@dataclass(frozen=True)
class LandingZone:
    """Where a stream's batches land."""

    root: str  # URI of the folder or prefix, resolved by :func:`landing_zone`
    s3: S3Settings

    @cached_property
    def storage(self) -> Storage:
        """The storage, opened at first use."""
        return open_storage(self.root, self.s3)

    def __getstate__(self) -> dict[str, object]:
        return {"root": self.root, "s3": self.s3}  # an open storage cannot be pickled

    def name_of(self, uri: str) -> str:
        """Name of the file at `uri`."""
        rest = uri.removeprefix(f"{self.root}/")
        if len(rest) < len(uri) and "%" not in rest:  # nearly always
            return rest
        if self._is_local:
            path = os.fsencode(local_path(uri))
            below = self._folder + b"/"
            return _as_text(path.removeprefix(below))
        return _as_text(rest.encode())

    def uri_of(self, name: str) -> str:
        """URI of the file called `name`."""
        raw = unquote_to_bytes(name)
        if not self._is_local:
            return f"{self.root}/{raw.decode()}"
        return "file://" + quote_from_bytes(raw if raw.startswith(b"/") else self._folder + b"/" + raw)

    def list(self) -> Iterator[tuple[str, StoredFile]]:
        """Every file, with its name; hidden ones too."""
        return ((self.name_of(file.uri), file) for file in self.storage.list())

    def list_recent(self, after: str | None) -> Iterator[tuple[str, StoredFile]]:
        """The files that may be new, see :meth:`lakeproof.storage.base.Storage.list_recent`; `after` is a name."""
        recent = self.storage.list_recent(None if after is None else self.uri_of(after))
        return ((self.name_of(file.uri), file) for file in recent)

    def stat(self, name: str) -> StoredFile | None:
        """Return facts of one file; None if it does not exist."""
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


def landing_zone(settings: Settings, stream: str) -> LandingZone:
    """The landing zone of a stream, with links and ``..`` resolved."""
    return zone_at(f"{settings.landing.uri}/{stream}", settings.s3)


def zone_at(uri: str, s3: S3Settings) -> LandingZone:
    """The files below an address, with links and ``..`` resolved."""
    if scheme_of(uri) == "file":
        return LandingZone("file://" + quote_from_bytes(os.fsencode(local_path(uri).resolve())), s3)
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    parts = [part for part in prefix.split("/") if part]
    return LandingZone("/".join([f"s3://{bucket}", *parts]), s3)


def content_hash(content: bytes) -> str:
    """128-bit BLAKE2b hash of a file, which the ledger keeps to recognize copies."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def is_hidden(name: str) -> bool:
    """Whether a file is ignored, as by Hadoop: unfinished, or its name or a folder's begins with ``_`` or ``.``.

    Folders above a linked folder do not count. A partition folder may begin with ``_``: ``_day=1``.
    """
    parts = name.split("/")[-1:] if name.startswith("/") else name.split("/")
    return name.endswith(_IN_PROGRESS) or any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts
    )


def _as_text(raw: bytes) -> str:
    text = raw.replace(b"%", b"%25").decode(errors="surrogateescape")
    return _NOT_UTF8.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", text)
