"""The book of proofs as verify uses it: which data files are known, and what has to be read since the last proof."""
