"""Recompute the windows and sessions of data products from silver in DuckDB's SQL."""
