"""Hashes of rows and of sets of rows, which the ledger records for each append.

The hash of a row is the first 64 bits of the MD5 of its text (:mod:`consumer.texts`): of all non-null columns, by their
first names. The hash of a set of rows is the sum of the row hashes: it does not depend on order or data files, and a
duplicated row changes it. ``reader.verify.tables.row_hash`` computes the same in SQL, and shares no code with this.
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
    """Return the hash of each row as uint64; `fields` are the contract's, for tables that have them."""
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
    """Return the sum of the row hashes by key."""
    encoded = keys.dictionary_encode()
    sums = np.zeros(len(encoded.dictionary), np.uint64)
    np.add.at(sums, encoded.indices.to_numpy(), hashes)
    return Counter(dict(zip(encoded.dictionary.to_pylist(), sums.tolist(), strict=True)))


def sum_of(hashes: Any) -> int:
    """Return the hash of a set of rows: the sum of their hashes, as a signed 64-bit number."""
    return signed(int(np.add.reduce(hashes, dtype=np.uint64)))


def signed(value: int) -> int:
    """Return a number modulo 2^64 as a signed number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
