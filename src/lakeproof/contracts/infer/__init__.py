"""Infer a contract from samples: collect the values of each field, and find the narrowest types."""
