"""Tables that lie outside of the warehouse, because their lake was copied or moved, and how they get into it."""
