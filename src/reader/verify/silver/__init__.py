"""The verdict on each row of bronze, recomputed in DuckDB's SQL and a loop over the keys that several rows have.

Content is the values of the contract's fields in bronze, not the hash that silver has.
"""
