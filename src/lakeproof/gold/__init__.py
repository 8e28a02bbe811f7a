"""Data products: one file per product, which defines a table of windows over a stream's silver."""
