"""Recompute the windows of data products from silver, and compare them with the tables of gold.

Nothing here is shared with the consumer: windows and measures are written again, in DuckDB's SQL. Shared is what a
product's file says: :mod:`lakeproof.gold` reads it.
"""
