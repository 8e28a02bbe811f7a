"""What the tables, the ledger and the markers say."""
