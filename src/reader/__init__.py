"""Reads the lake with DuckDB, without Spark."""
