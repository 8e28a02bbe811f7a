"""Committing to tables: markers, appends that happen once, and what is left to do after a crash."""
