"""Files on a local disk or on S3."""

from collections.abc import Callable
from importlib import import_module

from lakeproof.errors import UsageError
from lakeproof.settings import S3Settings
from lakeproof.storage.base import Storage, StoredFile

__all__ = ["Storage", "StoredFile", "open_storage", "scheme_of"]

_BACKENDS = {"file": "lakeproof.storage.local", "s3": "lakeproof.storage.s3"}


def open_storage(root: str, s3: S3Settings) -> Storage:
    """Open the storage below ``root``, chosen by its scheme."""
    connect: Callable[[str, S3Settings], Storage] = import_module(_BACKENDS[scheme_of(root)]).connect
    return connect(root, s3)


def scheme_of(uri: str) -> str:
    """Return the kind of storage that an address names: ``file`` or ``s3``."""
    scheme, separator, _ = uri.partition("://")
    if not separator or scheme not in _BACKENDS:
        raise UsageError(f"{uri} is not a file:// or s3:// address.", "Use a folder, a file:// or an s3:// address.")
    return scheme
