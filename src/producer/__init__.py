"""Generate batches of events with typical faults, and land them."""
