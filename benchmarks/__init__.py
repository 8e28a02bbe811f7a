"""Benchmarks: each runs all its sides, each side in its own process, and writes the results."""
