"""What an operator asks for: a run of queries, a repair of a stream, an archive of classes."""
