"""Judging: the bytes of a batch become good records and dead letters. No Spark, no files, no tables."""
