"""Limits of anomalies are the same doubles in SQL. Faults of samples are found in tests/consumer/layers/samples."""

import duckdb
from hypothesis import example, given
from hypothesis import strategies as st

from reader.verify.checks.samples import _double


@example(0.9324691361714099)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_limit_is_read_as_it_was_written(limit: float) -> None:
    assert duckdb.sql(f"SELECT {_double(limit)}").fetchone() == (limit,)
    assert duckdb.sql("SELECT " + _double(None)).fetchone() == (None,)
