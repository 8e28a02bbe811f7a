"""Recount what landed, recompute each layer from the one before it, and compare: :mod:`reader.verify.driver`.

Nothing here is shared with the consumer: units are found by code of its own (:mod:`reader.verify.landed`), verdicts and
windows are written again in DuckDB's SQL, and DuckDB reads the tables. Shared is what a contract or a product says.
"""
