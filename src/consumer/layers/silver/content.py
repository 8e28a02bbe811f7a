"""What makes rows the same: the text of their primary key, and the hash of their content."""

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from consumer.native_hashes import native_hashes
from consumer.texts import texts_of_fields
from lakeproof.contracts import Contract

_DIGEST_SIZE = 16


def keys(rows: pa.RecordBatch, contract: Contract) -> Any:
    """Text of the primary key of each row."""
    by_name = {field.name: field for field in contract}
    texts = texts_of_fields({name: (rows.column(name), by_name[name].type) for name in contract.primary_key})
    return texts.cast(pa.binary())


def content_hashes(rows: pa.RecordBatch, contract: Contract) -> Any:
    """BLAKE2b (128 bits) of the contract's fields of each row, but for derived ones.

    A contract can rename fields and list them in another order. That changes no content, and neither does what is
    derived: a copy of a record is ingested at another time.
    """
    fields = sorted((field for field in contract if not field.derived), key=lambda field: field.first_name)
    columns = {field.first_name: (rows.column(field.name), field.type) for field in fields}
    found = native_hashes("content_hashes", columns, rows.num_rows)
    if found is None:
        texts: list[Any] = texts_of_fields(columns).to_pylist()
        found = b"".join(blake2b(text, digest_size=_DIGEST_SIZE).digest() for text in texts)
    offsets = np.arange(rows.num_rows + 1, dtype=np.int32) * _DIGEST_SIZE
    return pa.Array.from_buffers(
        pa.binary(), rows.num_rows, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(found)]
    )
