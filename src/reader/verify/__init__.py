"""Recount what landed, recompute each layer from the one before it, and compare: :mod:`reader.verify.driver`.

The code is independent of the consumer: :mod:`reader.verify.landed` splits batches into units, DuckDB reads the tables,
and DuckDB's SQL recomputes verdicts and windows. Both programs share only the definitions of contracts and products.
"""
