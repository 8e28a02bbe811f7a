"""Snippets with which other programs read this lake."""
