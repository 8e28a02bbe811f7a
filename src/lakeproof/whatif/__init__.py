"""Judge landed units by a contract that is not applied."""
