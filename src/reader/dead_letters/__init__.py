"""What became dead letters, and why: ``reader dead-letters``."""
