"""Reads the lake with DuckDB, with no Spark running."""
