"""Makes batches of events, with the faults that real producers have, and lands them."""
