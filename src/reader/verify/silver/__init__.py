"""Recompute the verdict on each row of bronze, and compare it with the silver tables and their ledger.

Nothing here is shared with the consumer: what a verdict is, is written again, in DuckDB's SQL and a loop over the keys
that several rows have. Rows of a stream have an order: by micro-batch, source and position. What is compared is the
contract's fields themselves, not the hash that silver keeps of them.
"""
