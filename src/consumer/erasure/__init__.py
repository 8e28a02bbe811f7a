"""Erasure: what belongs to a person, where it is, and the account of what was removed."""
