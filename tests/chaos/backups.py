"""Copies of a lake's pieces, taken and restored while nothing uses the lake: in its folder, or in its bucket."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.lake import Lake
from tests.operations import pieces
from tests.operations.pieces import Piece

from lakeproof.storage.s3 import s3_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_ON_S3 = {Piece.CHECKPOINTS, Piece.WAREHOUSE}


class BackUp:
    """A copy of some pieces in their current state.

    Parameters
    ----------
    lake
        The lake.
    name
        Name that distinguishes copies of one lake.
    which
        The pieces.
    """

    def __init__(self, lake: Lake, name: str, *which: Piece) -> None:
        self._lake = lake
        self._folder = lake.folder / f"saved-{name}"
        self._prefix = f"saved-{name}/"
        uri = lake.settings.state.checkpoints
        self._bucket = uri.removeprefix("s3://").partition("/")[0] if uri.startswith("s3://") else None
        for piece in which:
            if self._is_on_s3(piece):
                self._copy(f"{piece}/", f"{self._prefix}{piece}/")
            else:
                pieces.back_up(lake.settings, self._folder, piece)

    def restore(self, *which: Piece) -> bool:
        """Restore pieces; return whether all of them had changed since the copy."""
        changed = True
        for piece in which:
            before = self._digest(piece)
            if self._is_on_s3(piece):
                self._copy(f"{self._prefix}{piece}/", f"{piece}/")
            else:
                pieces.restore(self._lake.settings, self._folder, piece)
            changed = changed and self._digest(piece) != before
        return changed

    def _is_on_s3(self, piece: Piece) -> bool:
        return self._bucket is not None and piece in _ON_S3

    @property
    def _client(self) -> "S3Client":
        return s3_client(self._lake.settings.s3)

    def _objects(self, prefix: str) -> Iterator[tuple[str, str]]:
        assert self._bucket
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
            for found in page.get("Contents", ()):
                yield found["Key"], found["ETag"]

    def _copy(self, source: str, target: str) -> None:
        assert self._bucket
        client = self._client
        for key, _ in list(self._objects(target)):
            client.delete_object(Bucket=self._bucket, Key=key)
        for key, _ in list(self._objects(source)):
            to = target + key.removeprefix(source)
            client.copy_object(Bucket=self._bucket, Key=to, CopySource={"Bucket": self._bucket, "Key": key})

    def _digest(self, piece: Piece) -> str:
        if self._is_on_s3(piece):
            found = [f"{key} {etag}".encode() for key, etag in self._objects(f"{piece}/")]
        else:
            found = [_digest_of(path) for path in _files(self._lake.folder, piece)]
        return hashlib.sha256(b"\n".join(found)).hexdigest()


def _files(folder: Path, piece: Piece) -> list[Path]:
    """Return all files of a piece, including the write-ahead log of a database."""
    roots = [folder / piece, folder / f"{piece}-wal"]
    return sorted(path for root in roots for path in (root, *root.rglob("*")) if path.is_file())


def _digest_of(path: Path) -> bytes:
    return f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode()
