"""Sources of batches. Every source yields envelopes, and the code behind it does not depend on the kind of source."""
