"""Recount the landing zone and compare it, source by source, with the tables and the ledger.

Nothing here is shared with the consumer: units are found by code of its own (:mod:`reader.verify.units`), whole and
clean batches are counted by DuckDB's parser (:mod:`reader.verify.landing`), and the tables are read by DuckDB.
"""
