"""Code shared by the programs: settings, contracts, the catalog, storage, table names, errors and logs."""
