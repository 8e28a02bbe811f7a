"""``reader dead-letters``: show dead letters and their reasons."""
