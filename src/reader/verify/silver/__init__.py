"""Recompute the verdict on each row of bronze, and compare it with the silver tables and their ledger.

Nothing here is shared with the consumer: what a verdict is, is written again, in DuckDB's SQL and a loop over the keys
that several rows have. Content is the values of the contract's fields in bronze, not the hash that silver has.
"""
