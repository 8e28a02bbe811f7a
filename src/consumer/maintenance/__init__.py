"""Maintenance of tables: compaction, expired snapshots, orphan files, replaced folders, and landing logs."""
