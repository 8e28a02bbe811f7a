"""Read the lake with DuckDB, without Spark."""
