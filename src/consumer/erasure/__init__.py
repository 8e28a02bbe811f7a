"""Erasure: the condition for a person's data, the search for it, and the account of removed rows."""
