"""Set-up after `pip install`: Spark's jars, and a project folder."""
