"""The windows and sessions of data products, recomputed from silver in DuckDB's SQL."""
