"""The tables of a stream: their names, columns and partitions."""
