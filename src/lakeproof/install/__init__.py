"""Everything between `pip install` and the first run: the jars of Spark, and a folder to start with."""
