"""Buckets of keys in RocksDB, on the driver's disk: a copy of what is safe elsewhere, and is made again from there."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import structlog
from rocksdict import BlockBasedOptions, Cache, ColumnFamily, DBCompressionType, Options, Rdict, WriteBatch

from lakeproof.errors import LakeproofError

log = structlog.get_logger()

_BLOCK_CACHE_BYTES = 64 << 20
_WRITE_BUFFER_BYTES = 16 << 20


class InUseError(LakeproofError):
    """Another process has a database open."""


class Buckets:
    """A database in which each bucket can be removed as a whole. One that is damaged is replaced by an empty one.

    Parameters
    ----------
    folder
        Where it lies; made if it is missing.
    setting
        The setting that moves it, for an error's hint.

    Raises
    ------
    InUseError
        Another process has it open.
    LakeproofError
        The folder cannot be written.
    """

    def __init__(self, folder: Path, setting: str) -> None:
        self._folder = folder
        self._hint = f"Check the folder's permissions and free space, or set {setting} to another one."
        self._buckets: dict[str, Rdict] = {}
        self._open()

    @property
    def all(self) -> Mapping[str, Rdict]:
        """The buckets by their names."""
        return MappingProxyType(self._buckets)

    def property(self, name: bytes) -> bytes | None:
        """What was written with a name outside of the buckets."""
        value: bytes | None = self._database.get(name)
        return value

    def write(self, batch: WriteBatch) -> None:
        """Write keys, whose buckets :meth:`handle` gave, and properties, at once."""
        self._database.write(batch)

    def handle(self, name: str) -> ColumnFamily:
        """A bucket, as a batch takes it; it is made if it is missing."""
        if name not in self._buckets:
            self._buckets[name] = self._database.create_column_family(name, _options())
        return self._database.get_column_family_handle(name)

    def drop(self, name: str) -> None:
        """Remove a bucket with all that is in it."""
        del self._buckets[name]
        self._database.drop_column_family(name)

    def clear(self) -> None:
        """Remove everything."""
        self.close()
        shutil.rmtree(self._folder)
        self._open()

    def close(self) -> None:
        """Close it."""
        self._buckets = {}
        self._database.close()

    def _open(self) -> None:
        try:
            self._database, names = _database(self._folder)
        except OSError as error:
            raise LakeproofError(f"Cannot write {self._folder}: {error.strerror}.", self._hint) from error
        except Exception as error:
            if "lock" in str(error).lower():
                raise InUseError(
                    f"The key index {self._folder} is in use by another process.", "End the other consumer first."
                ) from error
            log.warning("key index is damaged, and is built again", folder=str(self._folder), error=str(error))
            shutil.rmtree(self._folder, ignore_errors=True)
            try:
                self._database, names = _database(self._folder)
            except Exception as again:
                raise LakeproofError(f"Cannot write {self._folder}: {again}.", self._hint) from again
        self._buckets = {name: self._database.get_column_family(name) for name in names}


def _database(folder: Path) -> tuple[Rdict, list[str]]:
    """Open or make the database; return it with the names of its buckets."""
    folder.mkdir(parents=True, exist_ok=True)
    names = Rdict.list_cf(str(folder), _options()) if (folder / "CURRENT").exists() else []
    buckets = [name for name in names if name != "default"]
    return Rdict(str(folder), _options(), {name: _options() for name in buckets}), buckets


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, False)  # most keys are new: nothing is read for them
    blocks.set_block_cache(_CACHE)
    options.set_block_based_table_factory(blocks)
    return options


_CACHE = Cache(_BLOCK_CACHE_BYTES)
