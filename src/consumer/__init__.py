"""Judges landed batches with Spark and appends them to bronze or to the dead letters, each record once."""
