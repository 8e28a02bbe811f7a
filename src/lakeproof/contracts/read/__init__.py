"""Read contracts: Open Data Contract Standard documents in YAML, with line numbers."""
