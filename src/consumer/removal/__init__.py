"""Removal of data: retention by age, erasure of a person, and the account of both."""
