"""The landing zone of a stream: its root, and the names of its files."""
