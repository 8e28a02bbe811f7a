"""Reading a contract: an Open Data Contract Standard document in YAML, with the line of each thing."""
