"""Sides of benchmarks: programs that do the work, and print their figures as JSON in the last line."""
