"""Read landed data again: files, messages, receipts, and the units and values in them."""
