"""Recompute the verdict on each row of bronze, in DuckDB's SQL and a loop over keys with several rows.

Content is compared by the values of the contract's fields in bronze, not by silver's hash.
"""
