"""Benchmarks: each runs all its sides in one go, each side in a process of its own, and writes what it saw."""
