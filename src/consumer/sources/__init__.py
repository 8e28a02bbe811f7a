"""Sources of batches. Every source yields envelopes, so later code does not depend on the kind of source."""
