"""Inferring a contract from samples: read records, note the values of each field, and describe the narrowest types."""
