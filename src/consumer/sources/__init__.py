"""Where batches come from. Every source yields envelopes; from there on nothing knows which source it was."""
