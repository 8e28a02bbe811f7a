"""Landed files as a source: discovered, read once, named below their landing folder."""
