"""YAML documents of contracts and data products: positions, problems and names."""
