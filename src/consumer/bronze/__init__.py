"""Bronze: from the bytes of a batch to rows, each unit judged once."""
