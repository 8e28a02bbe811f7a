"""Check the collector's receipts against the tables: what was answered with 202 is in bronze once, and in silver once.

Nothing here is shared with the consumer: correlation ids are computed again, in DuckDB's SQL.
"""
