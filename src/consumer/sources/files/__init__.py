"""Landed files as a source: they are discovered, read once, and named relative to their landing folder."""
