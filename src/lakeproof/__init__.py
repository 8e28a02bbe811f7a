"""What the programs share: settings, contracts, the catalog, storage, table names, errors and logs."""
