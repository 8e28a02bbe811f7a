"""Judge the bytes of a batch: get good records and dead letters. No Spark, no files, no tables."""
