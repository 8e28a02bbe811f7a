"""Queries: each runs a layer, a replay or a maintenance, and follows what is new; an application runs several."""
