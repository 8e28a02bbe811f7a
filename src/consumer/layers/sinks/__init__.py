"""Sinks: committed rows of tables are sent to topics and written to files."""
