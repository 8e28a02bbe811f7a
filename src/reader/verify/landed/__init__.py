"""What landed, read again: files, messages, receipts, and the units and values in them."""
