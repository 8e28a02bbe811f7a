"""Backup and restore of catalog and state database, while consumers run.

The order is that of the protocol: what follows is copied before what it follows. So sink positions come first, then the
tables, gold before silver before bronze, and then the rest of the state database. A restore goes the same way.
"""
