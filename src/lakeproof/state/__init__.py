"""The state database: discovered files, leases, current contracts."""
