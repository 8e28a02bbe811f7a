"""Hashes of the rows of a table, and of sets of them: what the ledger records of an append.

The hash of a row is the first 64 bits of MD5 of its text (:mod:`consumer.texts`): of all columns that are not null, by
their first names. That of a set of rows is the sum of theirs: it depends on no order and no data file, and a row that
is doubled changes it. ``reader.verify.tables.row_hash`` has the same in SQL, and shares no code with this.
"""

from collections import Counter
from collections.abc import Iterable
from hashlib import md5
from typing import Any

import numpy as np
import pyarrow as pa

from consumer.native_hashes import native_hashes
from consumer.texts import texts_of_fields
from lakeproof.contracts import Field


def row_hashes(rows: pa.RecordBatch, fields: Iterable[Field] = ()) -> Any:
    """Hash of each row as uint64, of a table with columns of its own, and maybe the fields of a contract."""
    known = {name: field for field in fields for name in (field.name, *field.former_names)}
    columns: dict[str, Any] = {}
    for name, values in zip(rows.schema.names, rows.columns, strict=True):
        field = known.get(name)
        columns[field.first_name if field else name] = (values, field.type if field else None)
    columns = dict(sorted(columns.items()))
    found = native_hashes("row_hashes", columns, rows.num_rows)
    if found is None:
        texts: list[Any] = texts_of_fields(columns).to_pylist()
        found = b"".join(md5(text, usedforsecurity=False).digest()[:8] for text in texts)
    return np.frombuffer(found, "<u8")


def sums_by(keys: Any, hashes: Any) -> Counter[str]:
    """Sum of the hashes of the rows with each key."""
    encoded = keys.dictionary_encode()
    sums = np.zeros(len(encoded.dictionary), np.uint64)
    np.add.at(sums, encoded.indices.to_numpy(), hashes)
    return Counter(dict(zip(encoded.dictionary.to_pylist(), sums.tolist(), strict=True)))


def sum_of(hashes: Any) -> int:
    """Hash of a set of rows: the sum of their hashes, as a signed number of 64 bits."""
    return signed(int(np.add.reduce(hashes, dtype=np.uint64)))


def signed(value: int) -> int:
    """A number modulo 2^64, as a signed one."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
