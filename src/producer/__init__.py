"""Generates batches of events with typical faults, and lands them."""
