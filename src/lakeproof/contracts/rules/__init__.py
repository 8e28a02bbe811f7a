"""Rules of a contract: a small, typed part of SQL."""
