"""Judges landed batches with Spark, and appends each record exactly once, to bronze or to the dead letters."""
