"""Backup and restore of catalog and state database, while consumers run.

The order follows the protocol: a layer is copied before the layer that it reads. Sink positions come first, then the
tables (gold before silver before bronze), then the rest of the state database. A restore uses the same order.
"""
