"""Rules of a contract: a small, typed subset of SQL."""
