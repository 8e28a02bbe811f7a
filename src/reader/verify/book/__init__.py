"""The book of proofs in verify: compares tables with the last proof, and reads only what is new since then."""
