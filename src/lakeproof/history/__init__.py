"""History of the contracts that were applied to the tables of streams."""
