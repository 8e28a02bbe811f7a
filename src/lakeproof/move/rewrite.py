"""Copy a table's files to another folder, and rewrite its metadata.

Iceberg writes absolute addresses into metadata, manifest lists, manifests, position deletes and deletion vectors. These
are rewritten under new names, so that the leftovers of an interrupted move are never read. Data files are copied if
missing.
"""

import json
import re
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.catalog import metadata_text
from lakeproof.errors import LakeproofError, UnavailableError
from lakeproof.move.outside import plain

if TYPE_CHECKING:
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.io import FileIO

_DELETED = 2  # status of a manifest entry
_POSITION_DELETES = 1  # content of a data file
_PATH_IN_DELETES = 2147483546  # field id of the file path in position deletes
_PUFFIN = b"PFA1"
_FOOTER_END = 12  # size of the payload, flags and magic, 4 bytes each
_MOVED = re.compile(r"^moved-[0-9a-f]{12}-")  # prefix of an earlier move, which is removed so that names do not grow


@dataclass
class TableMove:
    """The move of one table."""

    io: "FileIO"
    name: str
    old: str
    new: str
    _mark: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _written: dict[str, tuple[str, int]] = field(default_factory=dict)

    def metadata(self, uri: str) -> str:
        """Move everything that a metadata file refers to; return the new metadata file."""
        found = json.loads(metadata_text(self._read(uri)))
        found["location"] = self.new
        found["metadata-log"] = []  # otherwise Iceberg would remove files of the other lake
        for snapshot in found.get("snapshots", ()):
            snapshot["manifest-list"], _ = self._once(snapshot["manifest-list"], self._manifest_list)
        for statistics in (*found.get("statistics", ()), *found.get("partition-statistics", ())):
            statistics["statistics-path"] = self._copied(
                statistics["statistics-path"], statistics["file-size-in-bytes"]
            )
        properties = found.get("properties", {})
        for key, value in properties.items():
            if plain(value).startswith(f"{self.old}/"):  # write.data.path
                properties[key] = self._place(value)
        number = re.match(r"v?(\d+)", uri.rpartition("/")[2])  # v3.metadata.json comes from a Hadoop catalog
        moved = f"{self.new}/metadata/{int(number[1]) + 1 if number else 0:05}-{uuid.uuid4()}.metadata.json"
        self._write(moved, json.dumps(found).encode())
        return moved

    def _manifest_list(self, uri: str, place: str) -> None:
        def change(record: Any, at: dict[str, int]) -> None:
            moved = self._once(record[at["manifest_path"]], self._manifest)
            record[at["manifest_path"]], record[at["manifest_length"]] = moved

        self._avro(uri, place, change)

    def _manifest(self, uri: str, place: str) -> None:
        def change(record: Any, at: dict[str, int]) -> None:
            self._data_file(record[at["data_file"]], at, is_gone=record[at["status"]] == _DELETED)

        self._avro(uri, place, change)

    def _data_file(self, file: Any, at: dict[str, int], is_gone: bool) -> None:
        path, size = at["data_file.file_path"], at["data_file.file_size_in_bytes"]
        referenced = at.get("data_file.referenced_data_file")
        if referenced is not None and file[referenced]:
            file[referenced] = self._place(file[referenced])
        if is_gone:
            file[path] = self._place(file[path])
        elif "data_file.content" not in at or file[at["data_file.content"]] != _POSITION_DELETES:
            file[path] = self._copied(file[path], file[size])
        else:
            kind = str(file[at["data_file.file_format"]]).lower()
            if kind not in ("puffin", "parquet"):
                raise LakeproofError(
                    f"{self.name} has position deletes in {kind.upper()} files, which cannot be moved.",
                    "Run CALL lake.system.rewrite_position_delete_files with Spark, and expire old snapshots first.",
                )
            write = self._vectors if kind == "puffin" else self._position_deletes
            file[path], file[size] = self._once(file[path], write)
            for bounds in ("data_file.lower_bounds", "data_file.upper_bounds"):
                if file[at[bounds]]:
                    kept = {key: value for key, value in file[at[bounds]].items() if key != _PATH_IN_DELETES}
                    file[at[bounds]] = kept or None

    def _vectors(self, uri: str, place: str) -> None:
        """Rewrite deletion vectors: the footer of a Puffin file names the data files."""
        content = self._read(uri)
        size = int.from_bytes(content[-_FOOTER_END : -_FOOTER_END + 4], "little")
        begin = len(content) - _FOOTER_END - size
        if content[-4:] != _PUFFIN or content[-8] & 1:
            raise LakeproofError(f"{uri} is not a file of deletion vectors that can be moved.", "Report it as a bug.")
        footer = json.loads(content[begin:-_FOOTER_END])
        for blob in footer["blobs"]:
            blob["properties"]["referenced-data-file"] = self._place(blob["properties"]["referenced-data-file"])
        changed = json.dumps(footer).encode()
        self._write(place, content[:begin] + changed + len(changed).to_bytes(4, "little") + content[-8:])

    def _position_deletes(self, uri: str, place: str) -> None:
        rows = pq.ParquetFile(BytesIO(self._read(uri))).read()
        of_path = rows.column_names.index("file_path")
        places = pa.array([self._place(str(path)) for path in rows["file_path"].to_pylist()])
        with self.io.new_output(place).create(overwrite=True) as target:
            pq.write_table(rows.set_column(of_path, rows.schema.field(of_path), places), cast("IO[bytes]", target))

    def _avro(self, uri: str, place: str, change: Callable[[Any, dict[str, int]], None]) -> None:
        """Rewrite the records of an Avro file, with the same schema and properties."""
        from pyiceberg.avro.file import AvroFile, AvroOutputFile

        with AvroFile[Any](self.io.new_input(self._where(uri))) as avro:
            records, at = list(avro), _positions(avro)
        for record in records:
            change(record, at)
        properties = {key: value for key, value in avro.header.meta.items() if not key.startswith("avro.")}
        name = json.loads(avro.header.meta["avro.schema"])["name"]
        with AvroOutputFile[Any](self.io.new_output(place), avro.schema, name, metadata=properties) as output:
            output.write_block(records)

    def _once(self, uri: str, write: Callable[[str, str], None]) -> tuple[str, int]:
        """Rewrite a file once; return its address and size."""
        if uri not in self._written:
            folder, _, name = self._place(uri).rpartition("/")
            moved = f"{folder}/moved-{self._mark}-{_MOVED.sub('', name)}"
            write(uri, moved)
            self._written[uri] = moved, len(self.io.new_input(moved))
        return self._written[uri]

    def _place(self, uri: str) -> str:
        """Return the address of a file in the new folder."""
        path = plain(uri)
        if path.startswith(f"{self.new}/"):
            return path
        if not path.startswith(f"{self.old}/"):
            raise LakeproofError(
                f"{self.name} refers to {uri}, which is outside of its folder {self.old}.",
                "Rewrite the table with the tool that placed the file there. Nothing was changed.",
            )
        return self.new + path.removeprefix(self.old)

    def _where(self, uri: str) -> str:
        """Return the new address of a file that exists there; otherwise, its old address."""
        place = self._place(uri)
        return place if self.io.new_input(place).exists() else uri

    def _copied(self, uri: str, size: int) -> str:
        place = self._place(uri)
        there, here = self.io.new_input(place), self.io.new_input(uri)
        try:
            # Some tools record a wrong size. Both may also be the same file, by another mount or a hard link.
            if not there.exists() or (len(there) != size and len(there) != len(here)):
                with here.open() as source, self.io.new_output(place).create(overwrite=True) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        except OSError as error:
            raise _unreadable(self.name, uri, error) from error
        return place

    def _read(self, uri: str) -> bytes:
        try:
            with self.io.new_input(self._where(uri)).open() as source:
                return source.read()
        except OSError as error:
            raise _unreadable(self.name, uri, error) from error

    def _write(self, uri: str, content: bytes) -> None:
        with self.io.new_output(uri).create(overwrite=True) as target:
            target.write(content)


def _positions(avro: "AvroFile[Any]") -> dict[str, int]:
    """Return the indexes of the fields of a record and of its data file."""
    at = {}
    for number, each in enumerate(avro.schema.fields):
        at[each.name] = number
        if each.name == "data_file":
            fields = getattr(each.field_type, "fields", ())
            at |= {f"data_file.{part.name}": place for place, part in enumerate(fields)}
    return at


def _unreadable(name: str, uri: str, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"Cannot copy {uri} of {name}: {error}.",
        "The files must be where they were, or in LAKE_WAREHOUSE, in the same folders below it. Nothing was changed.",
    )
