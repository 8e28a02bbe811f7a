"""Data products: each file defines a table of windows over a stream's silver."""
