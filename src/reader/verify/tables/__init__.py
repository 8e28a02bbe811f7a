"""SQL that reads the tables, the ledger and the markers."""
